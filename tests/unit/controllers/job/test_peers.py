"""Which worker an incident is laid to, of those that real torchrun ended; and what a preflight does to a job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from world import World

from torchctl.api.jobstatus import Failure, OtherLoss
from torchctl.api.kube import KaiPodGroup
from torchctl.controllers.gangs.evictions import LAST_EVICTION
from torchctl.runtime.kinds import ObjectMeta

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
REPORTS = Path(__file__).parent / "reports"
NOBODY = "{jobQueue: research, numNodes: 3, command: python train.py}"
TWO = "{{jobQueue: research, numNodes: 2, command: python train.py, runPolicy: {{restartPolicy: {policy}}}}}"


def running(world: type[World], policy: str = "OnFailure") -> World:
    w = world(TWO.format(policy=policy))
    w.settle()
    w.worker(0)
    w.worker(1)
    w.settle()
    return w


def fails(w: World, case: str, worker: int, after_s: float) -> None:
    w.worker_fails(worker, 1, (REPORTS / case / f"worker-{worker}.exit-1.txt").read_text(), after_s=after_s)


def decided(w: World) -> World:
    """Lets the time pass until the incident is counted."""
    w.settle()
    w.later(60)
    w.settle()
    return w


@pytest.mark.parametrize("case", ["exit-42", "exception-recorded", "segfault"])
@pytest.mark.parametrize("seconds", [10, 11, 8])
@pytest.mark.parametrize("first_seen", [0, 1])
def test_the_rank_that_failed_first_is_the_cause(world: type[World], case: str, seconds: int, first_seen: int) -> None:
    """The order in which the workers ended and were seen does not matter."""
    w = running(world, "Never")
    at = {0: 10, 1: seconds}
    for worker in (first_seen, 1 - first_seen):
        fails(w, case, worker, at[worker])
        w.step()
    failure = decided(w).failure
    assert failure.pod == "demo-1-x"
    assert failure.exit_code == {"exit-42": 42, "exception-recorded": 1, "segfault": -11}[case]
    assert failure.rank == 1


def test_a_lost_peer_does_not_use_the_programs_restarts(world: type[World]) -> None:
    w = running(world, "ExitCode")
    fails(w, "worker-1-lost", 0, 10)
    decided(w)
    assert w.restarts.by_cause == {"PeerLost": 1}
    assert w.attempt == 1


def test_a_lost_node_is_the_cause(world: type[World]) -> None:
    """The peer that noticed is not."""
    w = running(world, "ExitCode")
    fails(w, "worker-1-lost", 0, 10)
    w.step()
    w.worker(1, "Failed", reason="NodeLost", message="the node is gone", conditions=[])
    decided(w)
    assert w.restarts.by_cause == {"NodeLost": 1}
    assert w.failure.pod == "demo-1-x"


def told(w: World, index: int, after_s: float, **status: Any) -> None:
    """A worker that is told to stop, by whomever."""
    until = w.now + timedelta(seconds=after_s + 30)
    w.worker(index, metadata={"deletionTimestamp": until, "deletionGracePeriodSeconds": 30}, **status)


def three(world: type[World]) -> World:
    w = world(NOBODY)
    w.settle()
    for index in range(3):
        w.worker(index)
    w.settle()
    return w


@pytest.mark.parametrize("answers", [False, True])
def test_workers_that_the_job_controller_stops_are_not_the_cause(world: type[World], answers: bool) -> None:
    """All that is known of the one that ended by itself is that it lost a peer."""
    w = three(world)
    fails(w, "worker-1-lost", 0, 10)
    w.settle()
    w.job_is("FailureTarget", "BackoffLimitExceeded")
    for index in (1, 2):
        told(w, index, 11)
    if answers:
        said = (REPORTS / "agent-sigterm" / "worker-1.exit-1.txt").read_text()
        until = w.now + timedelta(seconds=41)
        meta = {"deletionTimestamp": until, "deletionGracePeriodSeconds": 30}
        w.worker_fails(1, 1, said, after_s=12, metadata=meta)
    decided(w)
    assert w.restarts.by_cause == {"PeerLost": 1}
    assert w.failure.pod == "demo-0-x"


@pytest.mark.parametrize(("after_s", "answers_s"), [(10, 11), (10, 10), (3, 3)])
@pytest.mark.parametrize(("case", "cause"), [("worker-1-lost", "PeerLost"), ("", "Error")])
def test_a_worker_stopped_after_a_failure_is_not_the_cause(
    world: type[World], case: str, cause: str, after_s: int, answers_s: int
) -> None:
    """Times are whole seconds, and of several clocks: that one node's is ahead makes its failure the later one."""
    w = three(world)
    message = (REPORTS / case / "worker-0.exit-1.txt").read_text() if case else "boom"
    w.worker_fails(0, 1, message, after_s=10)
    w.settle()
    w.job_is("FailureTarget", "BackoffLimitExceeded")
    told(w, 1, after_s)
    told(w, 2, after_s)
    w.settle()
    said = (REPORTS / "agent-sigterm" / "worker-1.exit-1.txt").read_text()
    until = w.now + timedelta(seconds=after_s + 30)
    meta = {"deletionTimestamp": until, "deletionGracePeriodSeconds": 30}
    w.worker_fails(1, 1, said, after_s=answers_s, metadata=meta)
    decided(w)
    assert w.restarts.by_cause == {cause: 1}
    assert w.failure.pod == "demo-0-x"


def test_a_stopped_worker_does_not_hide_an_explained_failure(world: type[World]) -> None:
    """Both are told to stop for a third that lost its peer, in two seconds of the clock."""
    w = three(world)
    fails(w, "worker-1-lost", 0, 10)
    w.settle()
    told(w, 2, 10)
    said = (REPORTS / "exit-42" / "worker-1.exit-1.txt").read_text()
    until = w.now + timedelta(seconds=41)
    w.worker_fails(1, 1, said, 13, metadata={"deletionTimestamp": until, "deletionGracePeriodSeconds": 30})
    decided(w)
    assert (w.restarts.by_cause, w.failure.pod) == ({"Error": 1}, "demo-1-x")


def test_a_lost_peer_is_remembered_after_its_pod_goes(world: type[World]) -> None:
    w = three(world)
    fails(w, "worker-1-lost", 0, 10)
    w.settle()
    w.pod_goes(0)
    told(w, 1, 10)
    w.job_is("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    w.settle()
    w.pod_goes(1, 2)
    decided(w)
    assert (w.restarts.by_cause, w.failure.pod) == ({"PeerLost": 1}, "demo-0-x")


@pytest.mark.parametrize(("gave_up_s", "cause"), [(0, "Error"), (5, "Deleted")])
def test_a_deletion_is_remembered_after_its_pod_goes(world: type[World], gave_up_s: int, cause: str) -> None:
    """Only the Job can tell whose the deletion was, and says so when the pod is gone; nothing is counted before."""
    w = three(world)
    w.later(10)
    told(w, 1, 0)
    w.settle()
    deleted = w.now
    w.worker_fails(0, 1, "boom", after_s=1)
    w.settle()
    other = w.incident.other
    assert other is not None
    assert (w.incident.cause, other.cause, other.failure.pod, other.lost) == ("Error", "Deleted", "demo-1-x", deleted)
    w.pod_goes(1)
    w.later(gave_up_s)
    w.job_is("FailureTarget", "BackoffLimitExceeded")
    decided(w)
    assert w.restarts.by_cause == {cause: 1}


@pytest.mark.proves(
    "TorchrunJob.status.incident.other.cause",
    "TorchrunJob.status.incident.other.failure.pod",
    "TorchrunJob.status.incident.other.failure.node",
    "TorchrunJob.status.incident.other.failure.rank",
    "TorchrunJob.status.incident.other.failure.exitCode",
    "TorchrunJob.status.incident.other.failure.reason",
    "TorchrunJob.status.incident.other.failure.message",
    "TorchrunJob.status.incident.other.lost",
)
def test_a_failure_is_kept_beside_a_deletion(world: type[World]) -> None:
    w = three(world)
    began = w.now
    told(w, 1, 0)
    w.later(5)
    w.worker_fails(0, 3, "boom", after_s=5)
    w.job_is("FailureTarget", "BackoffLimitExceeded")
    w.settle()
    failure = Failure(pod="demo-0-x", node="node-1", rank=0, exit_code=3, reason="Error", message="boom")
    assert w.incident.cause == "Deleted"
    assert w.incident.other == OtherLoss("Error", failure, began + timedelta(seconds=5))


def test_a_silent_job_is_not_waited_for_for_long(world: type[World]) -> None:
    w = three(world)
    told(w, 1, 0)
    w.worker_fails(0, 1, "boom", after_s=1)
    w.settle()
    for after_s, attempt in ((5, 0), (5, 1)):
        w.later(after_s)
        w.settle()
        assert w.attempt == attempt


def test_a_failure_on_a_fast_clock_is_remembered(
    world: type[World],
) -> None:
    """The pod goes, and by its node's clock it failed after the end of its Job."""
    w = running(world)
    w.worker_fails(0, 42, "boom", after_s=30)
    w.settle()
    w.later(14)
    w.job_is("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    w.pod_goes(0, 1)
    decided(w)
    assert (w.restarts.by_cause, w.failure.exit_code) == ({"Error": 1}, 42)


@pytest.mark.parametrize(
    ("gave_up_s", "pod"), [(None, "demo-1-x"), (11, "demo-1-x"), (10, "demo-0-x"), (9, "demo-0-x")]
)
@pytest.mark.parametrize("after_s", [8, 9, 12])
def test_a_deletion_before_the_job_gave_up_is_the_cause(
    world: type[World], gave_up_s: int | None, after_s: int, pod: str
) -> None:
    """The Job controller deletes nothing before that, but its clock may be a second ahead. The peer's is not asked."""
    w = three(world)
    told(w, 1, 9)
    fails(w, "worker-1-lost", 0, after_s)
    if gave_up_s is not None:
        w.later(gave_up_s)
        w.job_is("FailureTarget", "BackoffLimitExceeded")
    assert decided(w).failure.pod == pod


def test_an_explained_failure_is_the_cause_even_if_stopped(
    world: type[World],
) -> None:
    """One of its ranks fails, its peer notices and ends at once, torchrun takes its time with the other ranks."""
    w = three(world)
    fails(w, "worker-1-lost", 0, 10)
    w.settle()
    said = (REPORTS / "exit-42" / "worker-1.exit-1.txt").read_text()
    until = w.now + timedelta(seconds=41)
    w.worker_fails(1, 1, said, 13, metadata={"deletionTimestamp": until, "deletionGracePeriodSeconds": 30})
    decided(w)
    assert w.restarts.by_cause == {"Error": 1}
    assert (w.failure.pod, w.failure.exit_code) == ("demo-1-x", 42)


def test_a_lost_node_is_the_cause_whatever_its_peers_say(world: type[World]) -> None:
    """Kubernetes' pod garbage collector says Failed of a pod, and of its containers what was known last.

    It comes late, so no time tells. A peer that notices may say so in words of its own; if the program is to blame, it
    fails again in the next attempt.
    """
    w = running(world)
    w.later(3600)
    w.worker_fails(0, 42, "boom", after_s=3600)
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    ran = [{"name": "trainer", "state": {"running": {}}}]
    w.worker(1, "Failed", conditions=[gone], startTime=w.now - timedelta(hours=1), containerStatuses=ran)
    assert decided(w).restarts.by_cause == {"NodeLost": 1}


def test_a_worker_that_its_node_rejected_is_the_cause(
    world: type[World],
) -> None:
    """No container of the worker ever began, so none says when it ended. The others are stopped for it."""
    w = three(world)
    refused = {"reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu", "conditions": []}
    w.worker(0, "Failed", startTime=w.now + timedelta(seconds=10), **refused)
    w.settle()
    for index in (1, 2):
        told(w, index, 11)
    decided(w)
    assert w.restarts.by_cause == {"Rejected": 1}
    assert w.failure.pod == "demo-0-x"


WAITS = {"waiting": {"reason": "PodInitializing"}}
COPIED = {"terminated": {"exitCode": 0, "finishedAt": EPOCH + timedelta(seconds=3)}}
LOST = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}  # without a time


@pytest.mark.parametrize(
    ("reason", "cause"), [("Evicted", "Evicted"), ("Preempting", "Preempted"), ("Terminated", "NodeLost")]
)
@pytest.mark.parametrize("state", [WAITS, LOST], ids=["waits", "unknown"])
@pytest.mark.parametrize("first", [WAITS, COPIED], ids=["none", "init"])
def test_a_worker_given_up_before_it_began_is_the_cause(
    world: type[World], reason: str, cause: str, state: dict[str, Any], first: dict[str, Any]
) -> None:
    """The kubelet lets go of a pod whose image it still pulls, and says of its containers what it knows: nothing."""
    w = three(world)
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    statuses = {"containerStatuses": [{"name": "trainer", "state": state}]}
    statuses["initContainerStatuses"] = [{"name": "fetch", "state": first}]
    w.worker(0, "Failed", startTime=w.now, reason=reason, conditions=[target], **statuses)
    w.settle()
    for index in (1, 2):
        told(w, index, 10)
    decided(w)
    assert w.restarts.by_cause == {cause: 1}
    assert w.failure.pod == "demo-0-x"


def lost_track_of(w: World, index: int) -> None:
    statuses = [{"name": "trainer", "state": LOST}]
    w.worker(index, "Failed", startTime=EPOCH, reason="Evicted", conditions=[], containerStatuses=statuses)


def test_an_untimed_eviction_is_the_cause_beside_a_failure(world: type[World]) -> None:
    """restartPolicy ExitCode would fail the job for good by what a peer said of the worker that was taken."""
    w = running(world, "ExitCode")
    w.later(3600)
    w.worker_fails(0, 2, "usage: train.py", after_s=3599)
    lost_track_of(w, 1)
    decided(w)
    assert (w.restarts.by_cause, w.failure.pod) == ({"Evicted": 1}, "demo-1-x")


def refused(w: World, index: int) -> None:
    w.worker(index, "Failed", startTime=w.now, reason="OutOfcpu", conditions=[])


@pytest.mark.parametrize(("loses", "cause"), [(refused, "Rejected"), (lost_track_of, "Evicted")])
def test_a_failure_after_an_untimed_one_is_not_the_cause(world: type[World], loses: Any, cause: str) -> None:
    """What was seen first happened first, where the other is said to have happened later."""
    w = running(world)
    w.later(100)
    loses(w, 0)
    w.settle()
    w.worker_fails(1, 1, "boom", after_s=104)
    assert decided(w).restarts.by_cause == {cause: 1}


@pytest.mark.parametrize("code", [1, -9])
def test_torchruns_report_of_a_stopped_worker_is_not_the_cause(world: type[World], code: int) -> None:
    """The worker is stopped for one that ended without a time."""
    w = running(world)
    w.later(100)
    lost_track_of(w, 0)
    w.settle()
    said = (REPORTS / "exit-42" / "worker-1.exit-1.txt").read_text().replace("exitcode  : 42", f"exitcode  : {code}")
    meta = w.told()
    w.worker_fails(1, 1, said, after_s=102, metadata=meta)
    decided(w)
    assert (w.restarts.by_cause, w.failure.pod) == ({"Evicted": 1}, "demo-0-x")


def test_an_eviction_explains_more_than_a_deletion_without_a_reason(world: type[World]) -> None:
    w = running(world)
    told(w, 1, 10)
    w.later(10)
    w.settle()
    lost_track_of(w, 0)
    assert decided(w).restarts.by_cause == {"Evicted": 1}


ETCD = "{jobQueue: research, numNodes: 2, command: python a.py, distributed: {rdzvBackend: etcd-v2}%s}"
ELASTIC = ", elastic: {minNodes: 1, maxNodes: 3}"
OFF = "preflight: etcd 3.4.23 at etcd:2379 answers, but its v2 API is off. Start it with --enable-v2"


def asked(world: type[World], code: int, said: str, more: str = "") -> World:
    w = world(ETCD % more)
    w.settle()
    ended = {"exitCode": code, "reason": "Error", "message": said, "finishedAt": w.now + timedelta(seconds=5)}
    for index in (0, 1):
        w.play(
            f"demo-{index}-x",
            phase="Failed",
            initContainerStatuses=[{"name": "preflight", "state": {"terminated": ended}}],
        )
    decided(w)
    return w


@pytest.mark.parametrize("more", ["", ELASTIC])
def test_etcd_without_its_v2_api_ends_the_job_at_once(world: type[World], more: str) -> None:
    """The message names the next step."""
    w = asked(world, 69, OFF, more)
    assert w.condition("Failed")[:2] == ("True", "EtcdV2Disabled")
    assert "its v2 API is off. Start it with --enable-v2" in w.message("Failed")
    assert (w.restarts.total, w.failure.rank, w.failure.exit_code) == (0, None, 69)


def test_a_server_that_is_no_etcd_ends_the_job_too(world: type[World]) -> None:
    w = asked(world, 76, "preflight: what answers at web:80 is not etcd. Correct rdzvEndpoint")
    assert w.condition("Failed")[:2] == ("True", "PreflightFailed")


def test_an_unreachable_server_is_an_incident_of_the_cluster(world: type[World]) -> None:
    w = asked(world, 75, "preflight: etcd at etcd:2379 cannot be used after 300 s: timed out")
    assert w.restarts.by_cause == {"RendezvousUnreachable": 1}


def test_an_elastic_job_survives_workers_without_a_rendezvous(world: type[World]) -> None:
    """The workers could not reach the rendezvous server."""
    w = asked(world, 75, "preflight: etcd at etcd:2379 cannot be used after 300 s: timed out", ELASTIC)
    assert w.phase not in ("Failed", "Succeeded")
    assert w.attempt == 0


@pytest.mark.parametrize(("message", "others"), [("boom", (0, 2)), ("worker-1-lost", (0, 2)), ("", ())])
def test_a_deleted_worker_is_the_cause_even_if_seen_late(
    world: type[World], message: str, others: tuple[int, ...]
) -> None:
    """Pods and Jobs are watched separately: what comes after the Job's word may have happened long before it."""
    w = three(world)
    w.later(14)
    w.job_is("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    w.settle()
    path = REPORTS / message / "worker-0.exit-1.txt"
    for index in others:
        w.worker_fails(index, 1, path.read_text() if path.exists() else message, after_s=11)
    meta = {"deletionTimestamp": EPOCH + timedelta(seconds=40), "deletionGracePeriodSeconds": 30}
    w.worker_fails(1, 143, after_s=12, metadata=meta)
    decided(w)
    assert (w.restarts.by_cause, w.failure.pod) == ({"Deleted": 1}, "demo-1-x")


@pytest.mark.parametrize(("reason", "cause"), [("Evicted", "Evicted"), ("Preempting", "Preempted"), ("", "OOMKilled")])
@pytest.mark.parametrize("policy", ["OnFailure", "ExitCode"])
def test_a_report_of_a_stopped_worker_blames_no_program(
    world: type[World], policy: str, reason: str, cause: str
) -> None:
    """Its rank lost the first one, and says so in words of its own; the first one's node is 3 s ahead."""
    w = running(world, policy)
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": EPOCH + timedelta(seconds=13)}
    state = [{"name": "trainer", "state": {"terminated": ended}}]
    w.worker(0, "Failed", reason=reason, conditions=[], containerStatuses=state)
    w.settle()
    said = (REPORTS / "exit-42" / "worker-1.exit-1.txt").read_text().replace("exitcode  : 42", "exitcode  : 1")
    meta = {"deletionTimestamp": EPOCH + timedelta(seconds=41), "deletionGracePeriodSeconds": 30}
    w.worker_fails(1, 1, said, after_s=12, metadata=meta)
    decided(w)
    assert (w.restarts.by_cause, w.failure.pod) == ({cause: 1}, "demo-0-x")
    assert w.phase != "Failed"


def test_a_lost_peer_is_not_the_cause_beside_an_oom(
    world: type[World],
) -> None:
    """The sidecar of the worker that ran out of memory is stopped later."""
    w = three(world)
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": EPOCH + timedelta(seconds=10)}
    trainer = {"name": "trainer", "state": {"terminated": ended}}
    w.worker(0, containerStatuses=[trainer, {"name": "logs", "state": {"running": {}}}])
    w.settle()
    w.worker_fails(1, 1, (REPORTS / "worker-1-lost" / "worker-0.exit-1.txt").read_text(), after_s=10)
    meta = {"deletionTimestamp": EPOCH + timedelta(seconds=12), "deletionGracePeriodSeconds": 0}
    w.worker(0, "Failed", containerStatuses=[trainer], metadata=meta)
    decided(w)
    assert (w.restarts.by_cause, w.failure.pod) == ({"OOMKilled": 1}, "demo-0-x")


@pytest.mark.parametrize("after_s", [10, 11])
def test_an_oom_is_the_cause_even_if_seen_late(world: type[World], after_s: int) -> None:
    """The worker is stopped before that is seen."""
    w = three(world)
    fails(w, "worker-1-lost", 0, after_s)
    w.settle()
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": EPOCH + timedelta(seconds=10)}
    meta = {"deletionTimestamp": EPOCH + timedelta(seconds=after_s), "deletionGracePeriodSeconds": 0}
    w.worker(1, "Failed", metadata=meta, containerStatuses=[{"name": "trainer", "state": {"terminated": ended}}])
    decided(w)
    assert (w.restarts.by_cause, w.failure.pod) == ({"OOMKilled": 1}, "demo-1-x")


def test_a_refused_worker_explains_more_than_a_lost_peer(
    world: type[World],
) -> None:
    """The order in which they are seen does not matter."""
    w = three(world)
    fails(w, "worker-1-lost", 0, 10)
    w.settle()
    w.worker(1, "Failed", reason="SysctlForbidden", conditions=[], startTime=EPOCH)
    assert decided(w).failure.pod == "demo-1-x"


@pytest.mark.parametrize("reason", ["EvictionByEvictionAPI", "PreemptionByScheduler", "DeletionByTaintManager"])
def test_an_explained_deletion_is_the_cause_within_one_second(world: type[World], reason: str) -> None:
    """Two workers were told to stop in one second; one of them says why."""
    w = running(world)
    told(w, 0, 10)
    told(w, 1, 10, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": reason}])
    assert decided(w).failure.pod == "demo-1-x"


@pytest.mark.parametrize(
    ("evicted", "cause"), [({}, "Deleted"), ({LAST_EVICTION: "2026-01-01T00:00:10Z"}, "Preempted")]
)
def test_a_worker_that_is_gone_can_have_been_preempted(world: type[World], evicted: dict[str, str], cause: str) -> None:
    """KAI says afterwards that it evicted at that time."""
    w = three(world)
    told(w, 1, 10)
    w.later(10)
    w.settle()
    w.pod_goes(1)
    w.seen = replace(w.seen, podgroup=KaiPodGroup(ObjectMeta(name="pg", annotations=evicted)))
    decided(w)
    assert (w.restarts.by_cause, w.failure.pod) == ({cause: 1}, "demo-1-x")


@pytest.mark.parametrize("seen", [("pods", "job"), ("job", "pods"), ("both",)])
@pytest.mark.parametrize("ahead_s", [-2, 0, 2])
def test_a_nodes_clock_does_not_change_the_cause(world: type[World], seen: tuple[str, ...], ahead_s: int) -> None:
    """The worker exits 42 at second 10, the Job controller stops the others in that second, in whichever order seen."""
    w = three(world)
    w.later(10)
    for what in seen:
        if what in ("job", "both"):
            w.job_is("FailureTarget", "BackoffLimitExceeded")
        if what in ("pods", "both"):
            fails(w, "exit-42", 1, 10 + ahead_s)
            told(w, 0, 0)
            told(w, 2, 0)
        w.settle()
    decided(w)
    assert (w.restarts.by_cause, w.failure.exit_code) == ({"Error": 1}, 42)
