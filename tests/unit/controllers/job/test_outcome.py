"""How an attempt ends: which failure came first, what it means, and when a success is none."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from world import World

from torchctl.api.job import Failure
from torchctl.controllers.job.attempts.outcome import sentence

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TWO = "{jobQueue: research, numNodes: 2, command: python train.py}"
NEVER = "{jobQueue: research, numNodes: 2, command: python train.py, runPolicy: {restartPolicy: Never}}"

BLOCK = """
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-01_00:00:11
  host      : demo-0.demo.team.svc.cluster.local
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 40)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:10
  host      : demo-0.demo.team.svc.cluster.local
  rank      : 1 (local_rank: 1)
  exitcode  : 42 (pid: 41)
  error_file: <N/A>
============================================================
"""


def running(world: type[World], job: str = TWO) -> World:
    w = world(job)
    w.settle()
    return w.runs()


def ends(w: World) -> World:
    """Lets the open incident settle."""
    w.incident_settles()
    return w


def test_a_failure_that_is_not_retried_ends_the_job(world: type[World]) -> None:
    """Status describes it."""
    w = running(world, NEVER)
    w.worker_fails(1, 42, "boom")
    ends(w)
    assert w.condition("Failed")[:2] == ("True", "WorkerFailed")
    assert w.message("Failed") == (
        "pod demo-1-x on node node-1, rank 1 failed with exit code 42: boom; restartPolicy is Never; "
        "see `kubectl logs demo-1-x`"
    )
    failure = w.failure
    assert (failure.pod, failure.node, failure.rank, failure.exit_code) == ("demo-1-x", "node-1", 1, 42)
    assert (failure.reason, failure.message) == ("Error", "boom")
    assert [event[:2] for event in w.events][-2:] == [("Warning", "Incident"), ("Warning", "WorkerFailed")]
    assert w.reason("WorkersReady") == "Finished"


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (Failure(pod="a-0", exit_code=137, reason="OOMKilled"), "pod a-0 failed with exit code 137 (OOMKilled)"),
        (Failure(pod="a-0", exit_code=1, reason="Error", message="boom"), "pod a-0 failed with exit code 1: boom"),
        (Failure(pod="a-0", reason="Evicted", message="low on disk"), "pod a-0 failed (Evicted): low on disk"),
        (
            Failure(pod="a-0", exit_code=1, message='  File "a.py", line 2\nValueError: boom\na.py:3: UserWarning: b'),
            "pod a-0 failed with exit code 1: ValueError: boom",
        ),
    ],
)
def test_a_failure_shows_code_and_reason(failure: Failure, says: str) -> None:
    """The reason is shown only if it says more than the code."""
    assert sentence(failure) == says


def test_the_exit_code_is_that_of_torchruns_root_cause(world: type[World]) -> None:
    w = running(world)
    w.worker_fails(0, 1, BLOCK)
    w.settle()
    failure = w.failure
    assert (failure.rank, failure.exit_code) == (1, 42)


def test_the_earliest_pod_is_the_cause(world: type[World]) -> None:
    """If two pods failed in one second, the one that knows the cause counts."""
    w = running(world)
    w.worker_fails(0, 1, "lost connection", after_s=10)
    w.worker_fails(1, 1, BLOCK, after_s=10)
    w.settle()
    assert w.failure.pod == "demo-1-x"
    w = running(world)
    w.worker_fails(0, 1, "first", after_s=9)
    w.worker_fails(1, 1, BLOCK, after_s=10)
    w.settle()
    assert w.failure.pod == "demo-0-x"


def test_a_pod_stopped_after_a_failure_is_not_the_cause(world: type[World]) -> None:
    """The Job controller stops it."""
    w = running(world)
    deleted = {"deletionTimestamp": w.now + timedelta(seconds=40), "deletionGracePeriodSeconds": 30}
    w.worker_fails(0, 143, after_s=11, metadata=deleted)
    w.worker_fails(1, 7, "the cause", after_s=10)
    w.settle()
    assert (w.failure.pod, w.failure.exit_code) == ("demo-1-x", 7)


def test_a_pod_told_to_stop_is_an_incident_at_once(world: type[World]) -> None:
    """The other pods are stopped once the job has failed."""
    w = running(world, NEVER)
    w.told_to_stop(0)
    w.step()
    assert w.phase == "Restarting"
    assert w.failure.reason == "Deleted"
    w.later(5)
    w.step()
    assert w.phase == "Failed"
    assert w.last.actions.children == (), "nothing is stopped before the outcome stands"
    w.settle()
    assert w.stopped()
    assert not w.step()


def test_pods_stopped_by_their_jobs_deletion_are_not_the_cause(world: type[World]) -> None:
    w = running(world)
    w.remove("Job", "demo")
    w.told_to_stop(0)
    w.settle()
    assert w.condition("Failed")[:2] == ("True", "JobDisappeared")


def test_a_failure_before_the_jobs_deletion_is_the_cause(world: type[World]) -> None:
    w = running(world)
    w.worker_fails(0, 7)
    w.remove("Job", "demo")
    w.settle()
    assert w.failure.exit_code == 7


def test_the_job_controller_ends_a_job_with_failed_pods(world: type[World]) -> None:
    w = running(world)
    w.worker_fails(0)
    w.settle()
    assert not w.stopped()


def test_a_trainer_that_fails_beside_a_sidecar_is_a_failure(world: type[World]) -> None:
    """The sidecar lives; the pod is stopped."""
    w = running(world, NEVER)
    ended = {"name": "trainer", "state": {"terminated": {"exitCode": 5, "finishedAt": w.now}}}
    w.worker(0, "Running", containerStatuses=[ended, {"name": "logs", "state": {"running": {}}}])
    ends(w)
    assert (w.phase, w.failure.exit_code) == ("Failed", 5)
    assert w.halted == ["demo-0-x"]


def sidecar_failed(code: int) -> list[dict[str, Any]]:
    """A trainer that ended an hour after a sidecar of it had failed."""
    ended = {"exitCode": code, "reason": "Error", "message": "boom", "finishedAt": EPOCH + timedelta(hours=1)}
    before = {"exitCode": 3, "reason": "Error", "message": "no disk", "finishedAt": EPOCH + timedelta(seconds=1)}
    return [{"name": "trainer", "state": {"terminated": ended}}, {"name": "logs", "state": {"terminated": before}}]


def test_a_sidecar_that_failed_long_before_is_not_the_cause(world: type[World]) -> None:
    w = running(world, NEVER)
    w.later(3600)
    w.worker(0, "Failed", containerStatuses=sidecar_failed(42))
    ends(w)
    failure = w.failure
    assert (failure.exit_code, failure.message, failure.rank) == (42, "boom", 0)


def test_time_beside_a_failed_sidecar_is_active(world: type[World]) -> None:
    """The trainer runs on."""
    w = running(world)
    w.later(3600)
    w.worker(0, "Failed", containerStatuses=sidecar_failed(42))
    ends(w)
    assert (w.attempt, w.status.active_seconds, w.failure.exit_code) == (1, 3600, 42)


def test_a_sidecar_stopped_for_a_peer_is_not_the_cause(
    world: type[World],
) -> None:
    """The trainer beside the sidecar exited 0 before."""
    w = running(
        world, "{jobQueue: research, numNodes: 2, command: python train.py, runPolicy: {restartPolicy: ExitCode}}"
    )
    done = {"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": EPOCH + timedelta(seconds=100)}}}
    w.worker(0, "Running", containerStatuses=[done, {"name": "logs", "state": {"running": {}}}])
    w.later(300)
    w.worker_fails(1, 2, "boom", after_s=300)
    w.settle()
    w.job_is("FailureTarget", "BackoffLimitExceeded")
    stopped = {"exitCode": 143, "reason": "Error", "finishedAt": EPOCH + timedelta(seconds=302)}
    until = EPOCH + timedelta(seconds=331)
    w.worker(
        0,
        "Failed",
        containerStatuses=[done, {"name": "logs", "state": {"terminated": stopped}}],
        metadata={"deletionTimestamp": until, "deletionGracePeriodSeconds": 30},
    )
    ends(w)
    assert (w.phase, w.failure.pod, w.failure.exit_code) == ("Failed", "demo-1-x", 2)
    assert w.status.active_seconds == 300


@pytest.mark.parametrize(("told_after", "phase"), [(5, "Restarting"), (12, "Restarting"), (13, "Succeeded")])
def test_exit_0_after_being_told_to_stop_is_no_success(world: type[World], told_after: int, phase: str) -> None:
    w = running(world)
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": w.now + timedelta(seconds=10)}}}]
    until = w.now + timedelta(seconds=told_after + 30)
    w.worker(0, "Succeeded", containerStatuses=ended)
    w.worker(
        1,
        "Succeeded",
        containerStatuses=ended,
        metadata={"deletionTimestamp": until, "deletionGracePeriodSeconds": 30},
    )
    w.later(20)
    w.job_is("Complete")
    w.settle()
    assert w.phase == phase


@pytest.mark.parametrize("code", [0, 1, 143])
def test_the_kubelets_last_delete_does_not_hide_the_first(world: type[World], code: int) -> None:
    """It comes when the containers have ended, has no grace, and moves the deletion time to that moment."""
    w = running(world)
    at = w.now + timedelta(seconds=10)
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": code, "finishedAt": at}}}]
    last = {"deletionTimestamp": at + timedelta(seconds=1), "deletionGracePeriodSeconds": 0}
    w.worker(1, "Failed" if code else "Succeeded", containerStatuses=ended, metadata=last)
    w.later(20)
    w.incident_settles()
    assert w.restarts.by_cause == {"Deleted": 1}


def test_a_pod_deleted_long_afterwards_had_ended_by_itself(world: type[World]) -> None:
    w = running(world)
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": w.now}}}]
    late = {"deletionTimestamp": w.now + timedelta(minutes=1), "deletionGracePeriodSeconds": 0}
    for index in (0, 1):
        w.worker(index, "Succeeded", containerStatuses=ended, metadata=late)
    w.later(60)
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"


def test_a_complete_job_whose_pods_are_long_gone_is_believed(world: type[World]) -> None:
    w = running(world)
    w.pod_goes(0, 1)
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"


def test_a_failed_job_waits_for_its_failed_pod(world: type[World]) -> None:
    w = running(world, NEVER)
    w.job_is("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    w.settle()
    assert (w.phase, w.look_again_s()) == ("Restarting", 5)
    w.later(5)
    w.settle()
    assert w.phase == "Failed"
    assert "Job demo failed: Job has reached the specified backoff limit" in w.message("Failed")


def test_an_evicted_pod_is_told_with_its_reason(world: type[World]) -> None:
    w = running(world, NEVER)
    w.worker(1, "Failed", reason="Evicted", message="The node was low on resource: memory.", conditions=[])
    ends(w)
    failure = w.failure
    assert (failure.reason, failure.exit_code) == ("Evicted", None)
    assert "pod demo-1-x on node node-1, rank 1 failed (Evicted): The node was low" in w.message("Failed")


def test_a_complete_job_has_succeeded_even_while_being_deleted(world: type[World]) -> None:
    w = running(world)
    w.succeeds()
    w.job_deleting()
    w.settle()
    assert w.phase == "Succeeded"


@pytest.mark.parametrize(
    ("distributed", "pod", "rank"),
    [
        ("{rdzvBackend: static}", 10, 10),
        ("{rdzvBackend: c10d}", 10, 2),
        ("{rdzvBackend: c10d}", 2, 4),
        ("{rdzvBackend: etcd}", 1, None),
    ],
)
def test_the_rank_of_a_pod_is_said_if_known(world: type[World], distributed: str, pod: int, rank: int | None) -> None:
    """c10d sorts the names of its workers as text: 0, 1, 10, 11, 2, ..."""
    w = world(f"{{jobQueue: research, numNodes: 12, command: python a.py, distributed: {distributed}}}")
    w.settle()
    w.worker_fails(pod, 3)
    w.settle()
    assert w.failure.rank == rank


HOSTILE = [
    json.dumps({"message": {"message": "boom", "errorCode": 10**30}}),
    json.dumps({"message": {"message": "half a character: \ud83d"}}),
    json.dumps({"message": "half a character: \ud83d"}),
    "[" * 4000,
    '{"message":' * 300,
    BLOCK.replace("rank      : 1", "rank      : " + "9" * 40).replace("exitcode  : 42", "exitcode  : " + "9" * 3000),
]


@pytest.mark.parametrize("message", HOSTILE, ids=range(len(HOSTILE)))
def test_no_termination_message_keeps_a_failure_from_being_told(world: type[World], message: str) -> None:
    w = running(world, NEVER)
    w.worker_fails(1, 3, message)
    ends(w)
    assert w.phase == "Failed"
    failure = w.failure
    msgspec.json.encode(w.status)
    assert failure.rank is None or failure.rank < 2**31
    assert failure.exit_code == 3
