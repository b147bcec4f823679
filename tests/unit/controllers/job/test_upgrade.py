"""A job that an earlier version left is left as it is: see tests/golden/earlier/README.md."""

import json
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
import pytest
from earlier import EARLIER, left_in, observed_in, states, write
from world import World

from torchctl.api.kube import CONTROLLER_REVISION
from torchctl.controllers.job.plan import Steps, plan
from torchctl.controllers.job.status import derive
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.intent import Operation, decide, with_immutable
from torchctl.runtime.kinds import ObjectMeta

JOBS = EARLIER.parent / "jobs"
RELEASE = "TORCHCTL_RELEASE"
"""Environment variable: the version whose states this run writes before it compares."""

SETTINGS = OperatorSettings(image="torchctl:newer")
RECORDED_LATER = ("hostUid", "startTime")
"""Fields of status that an earlier version did not have, and that are recorded of a job that runs too."""

MUTABLE = {
    ("Job", ".spec.podReplacementPolicy: 'Failed' is now 'TerminatingOrFailed'"),
    ("Job", ".spec.suspend: False is gone"),
}
"""What changes besides metadata. The API server lets it change, and no pod is stopped by it."""


@pytest.fixture(scope="module", autouse=True)
def _written(world: type[World]) -> None:
    if os.environ.get(RELEASE):
        write(world, JOBS, EARLIER / os.environ[RELEASE])


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            at = f"{path}.{key}"
            if key not in after:
                yield f"{at}: {before[key]!r} is gone"
            elif key not in before:
                yield f"{at}: {after[key]!r} is new"
            else:
                yield from differences(before[key], after[key], at)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif before != after:
        yield f"{path}: {before!r} is now {after!r}"


def planned(state: dict[str, Any]) -> Steps:
    steps = plan(observed_in(state), SETTINGS, datetime.fromisoformat(state["now"]))
    assert isinstance(steps, Steps)
    return steps


@pytest.mark.parametrize("state", states())
def test_an_earlier_template_loads_and_keeps_its_name(state: dict[str, Any]) -> None:
    steps = planned(state)
    assert steps.template is not None, steps.findings
    assert steps.revision == state["observed"]["job"]["status"]["queueRevision"]
    assert steps.asks is None


@pytest.mark.parametrize("state", states())
def test_an_upgrade_removes_and_stops_nothing(state: dict[str, Any]) -> None:
    actions = planned(state).actions
    assert (actions.remove, actions.halt) == ((), ())


@pytest.mark.parametrize("state", states())
def test_an_upgrade_changes_no_status(state: dict[str, Any]) -> None:
    """The words of a condition's message may change."""
    status = derive(observed_in(state), planned(state), (), datetime.fromisoformat(state["now"]))
    found = differences(state["observed"]["job"]["status"], json.loads(msgspec.json.encode(status)))
    at = {line: line.partition(":")[0].lstrip(".") for line in found}
    assert [line for line, path in at.items() if path not in RECORDED_LATER and not path.endswith("].message")] == []


@pytest.mark.parametrize("state", states())
def test_an_upgrade_changes_children_only_in_their_metadata(state: dict[str, Any]) -> None:
    """The API server would refuse more: the template of a Job, the spec of a pod."""
    there, found = left_in(state), set[tuple[str, str]]()
    for child in planned(state).actions.children:
        live = there.get((child.kind.kind, child.name))
        if live is None:
            found.add((child.kind.kind, f"{child.name} is new"))
            continue
        meta = msgspec.convert(live["metadata"], ObjectMeta)
        decision = decide(child.body, meta, child.ours, manager="torchctl", drifted=lambda: True)
        assert decision.operation in (Operation.KEEP, Operation.UPDATE), child.name
        if decision.body is not None:
            spec = {key: value for key, value in live.items() if key not in ("metadata", "status")}
            body = with_immutable(decision.body, live)
            sent = {key: value for key, value in body.items() if key != "metadata"}
            found |= {(child.kind.kind, line) for line in differences(spec, json.loads(json.dumps(sent)))}
    assert found - MUTABLE == set()


def test_every_kind_of_child_is_among_the_states() -> None:
    kinds = {kind for state in states() for kind, _ in left_in(state.values[0])}
    assert kinds == {CONTROLLER_REVISION.kind, "Job", "PersistentVolumeClaim", "Pod", "PodGroup", "Service"}
