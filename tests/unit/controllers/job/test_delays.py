"""After a minute a worker that is not up is named with its state. The JSON is what kubelets and schedulers write."""

from datetime import timedelta
from typing import Any

import pytest
from world import World

from torchctl.controllers.job.plan import Question

CPU = "{jobQueue: research, numNodes: 2, command: python train.py}"
ELASTIC = "{jobQueue: research, numNodes: 3, command: python train.py, elastic: {minNodes: 2, maxNodes: 4}}"

PLACED = {"type": "PodScheduled", "status": "True"}
NOT_READY = [
    PLACED,
    {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
    {"type": "ContainersReady", "status": "False", "reason": "ContainersNotReady"},
]
SILENT = [PLACED, {"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
UNBOUND = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes are "
    "available: 3 Preemption is not helpful for scheduling.",
}
BEGUN = "2026-01-01T00:00:02Z"


def box(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": False, "restartCount": 0, "started": False, "state": state, "lastState": {}}


def waits(name: str, reason: str = "PodInitializing", message: str = "") -> dict[str, Any]:
    return box(name, waiting={"reason": reason, **({"message": message} if message else {})})


def runs(name: str, **more: Any) -> dict[str, Any]:
    return box(name, running={"startedAt": BEGUN}) | {"started": True, **more}


def ended(name: str, code: int = 0) -> dict[str, Any]:
    reason = "Error" if code else "Completed"
    return box(name, terminated={"exitCode": code, "reason": reason, "startedAt": BEGUN, "finishedAt": BEGUN})


STATES: dict[str, tuple[dict[str, Any], str]] = {
    "claim never binds": (
        {"node": "", "conditions": [UNBOUND]},
        "not scheduled (Unschedulable): 0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    ),
    "no such scheduler": (
        {"node": "", "conditions": []},
        "no scheduler has looked at it: schedulerName is default-scheduler, does that run? since 2026-01-01 00:00:00",
    ),
    "node took nothing up": ({"conditions": [PLACED]}, "node node-1 has not begun to start it"),
    "volume or network": (
        {"conditions": NOT_READY, "startTime": BEGUN, "containerStatuses": [waits("trainer", "ContainerCreating")]},
        "container trainer waits (ContainerCreating) since 2026-01-01 00:00:02 UTC",
    ),
    "init container hangs": (
        {
            "conditions": NOT_READY,
            "initContainerStatuses": [runs("setup"), waits("proxy")],
            "containerStatuses": [waits("trainer")],
        },
        "init container setup runs, and the others wait for it since 2026-01-01 00:00:02 UTC",
    ),
    "native sidecar crashes": (
        {
            "conditions": NOT_READY,
            "startTime": BEGUN,
            "initContainerStatuses": [
                ended("setup"),
                waits("proxy", "CrashLoopBackOff", "back-off 2m40s restarting failed container=proxy pod=demo-1-x"),
            ],
            "containerStatuses": [waits("trainer")],
        },
        "container proxy waits (CrashLoopBackOff): back-off restarting failed container=proxy pod=demo-1-x since 2026",
    ),
    "post-start hook": (
        {
            "conditions": NOT_READY,
            "startTime": BEGUN,
            "containerStatuses": [waits("trainer", "PostStartHookError", "Exec lifecycle hook failed: exit code 1")],
        },
        "container trainer waits (PostStartHookError): Exec lifecycle hook failed: exit code 1 since 2026",
    ),
    "readiness probe": (
        {"phase": "Running", "conditions": NOT_READY, "containerStatuses": [runs("trainer")]},
        "container trainer runs and is not ready: its readiness probe fails since 2026-01-01 00:00:02 UTC",
    ),
    "node does not answer": (
        {"phase": "Running", "conditions": SILENT, "containerStatuses": [runs("trainer", ready=True)]},
        "its node node-1 does not answer",
    ),
}


def hold(w: World, index: int, status: dict[str, Any]) -> None:
    born = {"creationTimestamp": w.now}
    w.worker(index, **({"phase": "Pending", "metadata": born} | status))


@pytest.mark.parametrize(("status", "says"), STATES.values(), ids=STATES)
def test_a_worker_that_is_late_is_named_with_its_state(world: type[World], status: dict[str, Any], says: str) -> None:
    w = world(CPU)
    w.settle()
    w.worker(0)
    hold(w, 1, status)
    w.settle()
    assert w.reason("WorkersReady") == "WorkersStarting"
    assert "demo-1-x" not in w.message("WorkersReady")
    assert w.look_again_s() == 60
    w.later(60)
    w.settle()
    found = w.condition("WorkersReady")
    assert found[:2] == ("False", "WorkersLate")
    assert found[2].startswith(f"1 of 2 workers of Job demo are ready; pod demo-1-x: {says}")
    assert found[2].endswith("; see `kubectl describe pod demo-1-x`")
    placed = bool(status.get("node", "node-1"))
    assert (w.steps.asks, w.look_again_s()) == ((Question.WHY_NOT_UP, 30) if placed else (None, None))
    w.later(3600)
    assert not w.step(), "the words do not move with the time"


def test_the_newest_warning_stands_beside_the_state(world: type[World]) -> None:
    w = world(CPU)
    w.settle()
    w.worker(0)
    hold(w, 1, STATES["volume or network"][0])
    w.later(60)
    w.warns('FailedMount: MountVolume.SetUp failed for volume "keys" : secret "keys" not found')
    w.settle()
    assert 'FailedMount: MountVolume.SetUp failed for volume "keys"' in w.message("WorkersReady")


def test_a_warning_that_says_the_same_is_not_repeated(world: type[World]) -> None:
    w = world(CPU)
    w.settle()
    w.worker(0)
    hold(w, 1, STATES["claim never binds"][0])
    w.later(60)
    w.warns(f"FailedScheduling: {UNBOUND['message']}")
    w.settle()
    assert w.message("WorkersReady").count("unbound") == 1


def test_of_several_late_workers_the_first_is_named(world: type[World]) -> None:
    w = world(CPU)
    w.settle()
    for index in (1, 0):
        hold(w, index, STATES["no such scheduler"][0])
    w.later(60)
    w.settle()
    assert "pod demo-0-x: " in w.message("WorkersReady")


def test_a_job_above_its_minimum_says_why_workers_are_missing(world: type[World]) -> None:
    w = world(ELASTIC)
    w.settle()
    for index in (0, 1):
        w.worker(index)
    hold(w, 2, STATES["volume or network"][0])
    w.later(60)
    w.settle()
    status, reason, message = w.condition("WorkersReady")
    assert (w.phase, status, reason) == ("Running", "True", "WorkersReady")
    assert "2 of 3 workers of Job demo are ready; pod demo-2-x: container trainer waits (ContainerCreating)" in message


def test_an_elastic_job_reports_unschedulable_workers_at_once(world: type[World]) -> None:
    w = world(ELASTIC)
    w.settle()
    for index in (0, 1):
        w.worker(index)
    full = UNBOUND | {"message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}
    hold(w, 2, {"node": "", "conditions": [full]})
    w.settle()
    assert "are ready; pod demo-2-x: 0/3 nodes are available: 3 Insufficient" in w.message("WorkersReady")


def test_a_worker_up_done_or_stopped_is_not_late(world: type[World]) -> None:
    w = world(ELASTIC)
    w.settle()
    born = {"creationTimestamp": w.now}
    w.worker(0, metadata=born)
    w.worker(1, "Succeeded", metadata=born)
    w.worker(2, "Pending", metadata=born | {"deletionTimestamp": w.now + timedelta(seconds=90)}, conditions=[])
    w.later(60)
    w.settle()
    assert w.steps.asks is None


class TestPodsThatAreNotThere:
    def test_a_large_job_whose_pods_still_appear_is_not_refused(self, world: type[World]) -> None:
        """The Job controller makes 500 pods at once, and those of a large Job bit by bit."""
        w = world("{jobQueue: research, numNodes: 3, command: python train.py}")
        w.settle()
        for index in range(2):
            w.later(25)
            w.worker(index, metadata={"creationTimestamp": w.now})
            w.settle()
            assert w.reason("WorkersReady") == "WorkersStarting"
        w.later(30)
        w.settle()
        assert w.reason("WorkersReady") == "PodsNotCreated"
