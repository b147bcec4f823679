"""The run policy of a queue holds for its jobs, whose own word wins; and the moments of an attempt stand in status."""

from datetime import timedelta

import pytest
from world import World

from torchctl.api.jobstatus import Incident

JOB = "{jobQueue: research, numNodes: 2, command: python train.py%s}"


def running(world: type[World], queue: str, job: str = "") -> World:
    """A job whose two workers run."""
    w = world(JOB % (f", runPolicy: {job}" if job else ""), f"{{image: a:1, runPolicy: {queue}}}")
    w.settle()
    return w.runs()


def failing(world: type[World], queue: str, job: str = "") -> World:
    """A job whose second worker has failed, a while after that."""
    w = running(world, queue, job)
    w.worker_fails(1, 1)
    w.incident_settles()
    return w


@pytest.mark.parametrize(
    ("queue", "job", "phase"),
    [
        pytest.param(
            "{maxRestarts: 0}", "", "Failed", marks=pytest.mark.proves("TorchrunQueue.spec.runPolicy.maxRestarts")
        ),
        pytest.param(
            "{maxRestarts: 0}",
            "{maxRestarts: 1}",
            "Restarting",
            marks=pytest.mark.proves("TorchrunJob.spec.runPolicy.maxRestarts"),
        ),
        pytest.param(
            "{restartPolicy: Never}",
            "",
            "Failed",
            marks=pytest.mark.proves("TorchrunQueue.spec.runPolicy.restartPolicy"),
        ),
        pytest.param(
            "{restartPolicy: Never}",
            "{restartPolicy: OnFailure}",
            "Restarting",
            marks=pytest.mark.proves("TorchrunJob.spec.runPolicy.restartPolicy"),
        ),
        ("{restartPolicy: ExitCode}", "", "Failed"),
    ],
)
def test_the_job_overrides_the_queues_restart_policy(world: type[World], queue: str, job: str, phase: str) -> None:
    assert failing(world, queue, job).phase == phase


@pytest.mark.parametrize(
    ("queue", "job", "due"),
    [
        pytest.param(
            "{ttlSecondsAfterFinished: 60}",
            "",
            60,
            marks=pytest.mark.proves("TorchrunQueue.spec.runPolicy.ttlSecondsAfterFinished"),
        ),
        ("{ttlSecondsAfterFinished: 60}", "{ttlSecondsAfterFinished: 5}", 5),
    ],
)
def test_the_job_overrides_the_queues_time_to_live(world: type[World], queue: str, job: str, due: int) -> None:
    w = running(world, queue, job)
    w.succeeds()
    w.settle()
    assert (w.look_again_s(), w.last.actions.remove) == (due, ())
    w.later(due)
    w.step()
    assert [removal.kind.kind for removal in w.last.actions.remove] == ["TorchrunJob"]


@pytest.mark.parametrize(
    ("queue", "job", "due"),
    [
        pytest.param(
            "{activeDeadlineSeconds: 300}",
            "",
            300,
            marks=pytest.mark.proves("TorchrunQueue.spec.runPolicy.activeDeadlineSeconds"),
        ),
        ("{activeDeadlineSeconds: 300}", "{activeDeadlineSeconds: 30}", 30),
    ],
)
def test_active_time_is_limited_by_the_queue_or_the_job(world: type[World], queue: str, job: str, due: int) -> None:
    w = running(world, queue, job)
    w.later(due - 1)
    w.settle()
    assert w.phase == "Running"
    w.later(1)
    w.settle()
    assert w.condition("Failed")[:2] == ("True", "DeadlineExceeded")


@pytest.mark.proves("TorchrunQueue.spec.runPolicy.startupTimeoutSeconds")
@pytest.mark.parametrize(("job", "due"), [("", 60), (", runPolicy: {startupTimeoutSeconds: 5}", 5)])
def test_starting_is_limited_by_the_queue_or_the_job(world: type[World], job: str, due: int) -> None:
    w = world(JOB % job, "{image: a:1, runPolicy: {startupTimeoutSeconds: 60}}")
    w.settle()
    for index in range(2):
        w.worker(index, "Pending")
    w.settle()
    w.later(due - 1)
    w.settle()
    assert w.phase == "Starting"
    w.later(1)
    w.settle()
    assert w.condition("Failed")[:2] == ("True", "StartupTimeout")


@pytest.mark.parametrize(
    ("queue", "job", "kept"),
    [
        pytest.param(
            "{podRetention: None}", "", False, marks=pytest.mark.proves("TorchrunQueue.spec.runPolicy.podRetention")
        ),
        ("{podRetention: None}", "{podRetention: Failed}", True),
        ("{}", "", True),
    ],
)
def test_the_job_overrides_the_queues_pod_retention(world: type[World], queue: str, job: str, kept: bool) -> None:
    w = failing(world, queue, job)
    w.later(10)
    w.pod_goes(0)
    w.settle()
    assert (w.has("Job", "demo"), w.has("Job", "demo-r1")) == (kept, True)


# Moments.


@pytest.mark.proves(
    "TorchrunJob.status.incident.cause", "TorchrunJob.status.incident.opened", "TorchrunJob.status.incident.lost"
)
def test_an_incident_stands_in_status_while_it_is_open(world: type[World]) -> None:
    w = running(world, "{}")
    begin = w.now
    w.later(30)
    w.worker_fails(1, 137, after_s=28)
    w.settle()
    assert w.status.incident == Incident(
        cause="Error", opened=begin + timedelta(seconds=30), lost=begin + timedelta(seconds=28)
    )
    w.later(5)
    w.settle()
    assert w.status.incident is None


@pytest.mark.proves(
    "TorchrunJob.status.attempt",
    "TorchrunJob.status.attemptStartTime",
    "TorchrunJob.status.attemptActiveTime",
    "TorchrunJob.status.attemptReadyTime",
    "TorchrunJob.status.nextAttemptTime",
)
def test_status_has_the_moments_of_an_attempt(
    world: type[World],
) -> None:
    """The moments are those at which its Job, its pods and all its workers were there."""
    w = world(JOB % "", "{image: a:1, kaiQueue: gpus}")
    w.settle()
    begin = w.now
    w.later(10)
    for index in range(2):
        w.worker(index, "Pending")
    w.settle()
    w.later(10)
    for index in range(2):
        w.worker(index)
    w.settle()
    status = w.status
    moments = (status.attempt_start_time, status.attempt_active_time, status.attempt_ready_time)
    assert moments == (begin, begin + timedelta(seconds=10), begin + timedelta(seconds=20))
    assert (status.attempt, status.next_attempt_time) == (0, None)
    w.later(10)
    w.worker_fails(1, 1, after_s=30)
    w.incident_settles()
    status = w.status
    assert (status.attempt, status.next_attempt_time) == (1, w.now + timedelta(seconds=10))
    assert (status.attempt_start_time, status.attempt_active_time, status.attempt_ready_time) == (None, None, None)
    assert status.start_time == begin
