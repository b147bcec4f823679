"""What was read for earlier decisions changes none: whatever has happened since, the state is that of a fresh look."""

from dataclasses import replace
from typing import Any

import msgspec
from effort import examples
from gangobjects import GPU, NOW, QUEUED, TEMPLATE, a_class, a_job, a_node, a_pod, a_queue, record
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.api.capacity import LimitRange, RuntimeClass
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.plan import state_of
from torchctl.controllers.coordinator.readings import Readings
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.kinds import Key


def _template(**spec: Any) -> dict[str, Any]:
    pod = {**TEMPLATE["pod"]["spec"], **spec}
    return TEMPLATE | {"pod": {"metadata": {}, "spec": pod}}


def _limits(cpu: str) -> LimitRange:
    item = {"type": "Container", "defaultRequest": {"cpu": cpu}}
    return msgspec.convert({"metadata": {"name": "l", "namespace": "team"}, "spec": {"limits": [item]}}, LimitRange)


def _runtime(cpu: str) -> RuntimeClass:
    return msgspec.convert({"metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": cpu}}}, RuntimeClass)


HELD = QUEUED | {"admission": record()}
SECOND, THIRD = QUEUED | {"queueRevision": "job-2"}, QUEUED | {"queueRevision": "job-3"}
TAINTED = a_node("n0", taints=[{"key": "gone", "value": "", "effect": "NoExecute"}])
WORKER = {"torchrun.ai/job-uid": "one", "torchrun.ai/attempt": "0", "torchrun.ai/role": "worker"}
# A revision's name has the digest of its data: one name never says two things, but its object comes and goes.
USUAL = {Key("team", "job-1"): TEMPLATE}
CLASSED = {Key("team", "job-2"): _template(runtimeClassName="kata", priorityClassName="high")}
UNREADABLE = {Key("team", "job-3"): _template(containers=[{"resources": {"limits": {GPU: "?"}}}])}

_jobs = st.tuples(
    st.sampled_from((a_job("one"), a_job("one", numNodes=3), a_job("one", priority=5), a_job("one", HELD))),
    st.sampled_from((a_job("other", SECOND), a_job("other", THIRD), a_job("other", HELD | SECOND))),
)
# Most often everything is there.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "jobs": _jobs | _jobs.map(lambda jobs: jobs[1:]) | st.just((a_job("other", SECOND | {"phase": "Suspended"}),)),
    "templates": st.sampled_from((USUAL | CLASSED | UNREADABLE, USUAL, {})),
    "queues": st.sampled_from(((a_queue(),), (a_queue(capacity="Autoscaled"),))),
    "nodes": st.sampled_from(((a_node("n0"),), (TAINTED,), (a_node("n0"), a_node("n1")), ())),
    "pods": st.sampled_from(((a_pod("n0", WORKER), a_pod("n1", WORKER)), (a_pod("n0"),), (a_pod("n0", gpus=3),), ())),
    "priorities": st.sampled_from(((a_class("high", 9),), (a_class("high", 3), a_class("usual", 2, default=True)), ())),
    "limit_ranges": st.sampled_from(((_limits("1"),), (_limits("2"),), ())),
    "runtimes": st.sampled_from(((_runtime("1"),), (_runtime("2"),), ())),
}
_changes = st.sampled_from([*VALUES]).flatmap(lambda name: st.tuples(st.just(name), VALUES[name]))


@settings(max_examples=examples(300))
@given(st.builds(Observed, **VALUES), st.lists(_changes, max_size=8))
def test_earlier_readings_change_no_state(observed: Observed, changes: list[tuple[str, Any]]) -> None:
    readings, set_up = Readings(), CoordinatorSettings()
    for name, value in [("queues", observed.queues), *changes]:
        observed = replace(observed, **{name: value})
        assert state_of(observed, set_up, NOW, readings) == state_of(observed, set_up, NOW)
