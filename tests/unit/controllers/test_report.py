"""What the API server says of a CRD that is older than the operator."""

from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.job import TORCHRUN_JOB, JobSpec, TorchrunJob
from torchctl.api.jobstatus import Admission, JobStatus
from torchctl.controllers.ownership import surplus
from torchctl.controllers.report import Reporter, undeclared_field
from torchctl.runtime.client.client import Client
from torchctl.runtime.events import EventRecorder
from torchctl.runtime.kinds import Condition, Kind, ObjectMeta

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (
            "failed to create typed patch object (team/demo; torchrun.ai/v1alpha1, Kind=TorchrunJob): "
            ".status.hostUid: field not declared in schema",
            "status.hostUid",
        ),
        (
            "failed to create typed patch object (team/demo; torchrun.ai/v1alpha1, Kind=TorchrunJob): errors:\n"
            "  .status.restarts.recentByCause: field not declared in schema\n"
            "  .status.hostUid: field not declared in schema",
            "status.restarts.recentByCause",
        ),
        ("etcdserver: request timed out", None),
    ],
)
def test_an_older_crd_is_told_by_the_field_it_lacks(message: str, field: str | None) -> None:
    assert undeclared_field(message) == field


class Applies:
    """Stands for the client: notes what is applied, and what is removed."""

    def __init__(self, answer: TorchrunJob) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.patches: list[dict[str, Any]] = []
        self._answer = answer

    async def apply(self, kind: Kind[Any], body: dict[str, Any], **_: Any) -> TorchrunJob:
        self.bodies.append(body)
        return self._answer

    async def merge_patch(self, kind: Kind[Any], name: str, patch: dict[str, Any], **_: Any) -> TorchrunJob:
        self.patches.append(patch)
        return self._answer


async def test_what_another_controller_writes_is_left_to_it() -> None:
    """A field that is applied is owned, and the coordinator could take nothing back."""
    status = JobStatus(phase="Queued", admission=Admission(place=1))
    job = TorchrunJob(ObjectMeta(name="job", namespace="team"), JobSpec.model_construct())
    client = Applies(msgspec.structs.replace(job, status=status))
    await Reporter(cast(Client, client), cast(EventRecorder, None)).report(TORCHRUN_JOB, job, status, ())
    assert [body["status"] for body in client.bodies] == [{"phase": "Queued"}]


async def test_only_conditions_of_our_types_are_removed() -> None:
    """One that came back with an older status would stay beside those that are applied."""
    ours, older, theirs = (
        Condition(type=type_, status="True", reason="Because", message="", last_transition_time=NOW)
        for type_ in ("Accepted", "Failed", "example.com/Audited")
    )
    job = TorchrunJob(ObjectMeta(name="job", namespace="team"), JobSpec.model_construct())
    status = JobStatus(phase="Queued", conditions=(ours,))
    for left, patches in (
        ((older, ours), [[msgspec.to_builtins(ours)]]),
        ((older, theirs, ours), [[msgspec.to_builtins(ours), msgspec.to_builtins(theirs)]]),
        ((theirs, ours), []),
        ((ours,), []),
    ):
        client = Applies(msgspec.structs.replace(job, status=msgspec.structs.replace(status, conditions=left)))
        await Reporter(cast(Client, client), cast(EventRecorder, None)).report(TORCHRUN_JOB, job, status, ())
        assert [[*patch["status"]["conditions"]] for patch in client.patches] == patches


async def test_conditions_of_others_are_no_reason_to_write() -> None:
    ours, theirs = (
        Condition(type=type_, status="True", reason="Because", message="", last_transition_time=NOW)
        for type_ in ("Accepted", "example.com/Audited")
    )
    job = TorchrunJob(ObjectMeta(name="job", namespace="team"), JobSpec.model_construct())
    status = JobStatus(phase="Queued", conditions=(ours,))
    seen = msgspec.structs.replace(job, status=msgspec.structs.replace(status, conditions=(theirs, ours)))
    client = Applies(seen)
    await Reporter(cast(Client, client), cast(EventRecorder, None)).report(TORCHRUN_JOB, seen, status, ())
    assert client.bodies == []


COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), min_size=1)
STATUSES = st.fixed_dictionaries(
    {}, optional={"attempt": st.integers(0, 2), "by": COUNTS, "items": st.lists(st.sampled_from("abc"), unique=True)}
)


@given(STATUSES, STATUSES)
def test_what_apply_leaves_is_removed(wanted: dict[str, Any], others: dict[str, Any]) -> None:
    """Somebody else owns all that they have set."""
    found = {**others, **wanted}
    for name in others.keys() & wanted.keys() & {"by"}:
        found[name] = others[name] | wanted[name]
    for name in others.keys() & wanted.keys() & {"items"}:
        found[name] = [*{*others[name], *wanted[name]}]
    left = merged(found, surplus(wanted, found))
    assert {**left, "items": {*left.get("items", ())}} == {**wanted, "items": {*wanted.get("items", ())}}
    assert surplus(wanted, wanted) == {}


def merged(body: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch, as RFC 7386 has it."""
    changed = {
        name: merged(body[name], value) if isinstance(value, dict) else value
        for name, value in patch.items()
        if value is not None
    }
    return {name: value for name, value in body.items() if name not in patch} | changed
