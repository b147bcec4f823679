"""Active time and start-up time are limited, and time that is neither does not count."""

import pytest
from world import World, elastic, job

from torchctl.controllers.finding import Refusal
from torchctl.controllers.job.plan import Idle, again_s


@pytest.mark.proves("TorchrunJob.status.activeSeconds", "TorchrunJob.spec.runPolicy.activeDeadlineSeconds")
def test_only_active_time_counts_over_all_attempts(world: type[World]) -> None:
    w = world.running(job("runPolicy: {activeDeadlineSeconds: 300}"))
    assert w.look_again_s() == 300
    w.later(200)
    w.edit(suspend=True)
    w.settle()
    w.later(5000)
    assert w.look_again_s() is None
    w.edit(suspend=False)
    w.settle()
    w.old_pods_go()
    w.runs()
    w.later(99)
    w.settle()
    assert w.phase == "Running"
    w.later(1)
    w.settle()
    assert w.condition("Failed")[:2] == ("True", "DeadlineExceeded")
    assert w.status.active_seconds == 300
    assert w.stopped("demo-r1")


@pytest.mark.proves("TorchrunJob.spec.runPolicy.startupTimeoutSeconds")
def test_time_in_a_gang_schedulers_queue_is_not_active(world: type[World]) -> None:
    w = world(
        job("runPolicy: {activeDeadlineSeconds: 300, startupTimeoutSeconds: 60}"), queue="{image: a, kaiQueue: x}"
    )
    w.settle()
    w.later(10_000)
    w.settle()
    assert w.phase == "Queued"
    for index in range(2):
        w.worker(index, "Pending")
    w.settle()
    assert w.phase == "Starting"
    w.later(60)
    w.settle()
    assert w.condition("Failed")[:2] == ("True", "StartupTimeout")


def test_time_without_a_gang_scheduler_is_active_at_once(world: type[World]) -> None:
    """The active time begins when the Job is made."""
    w = world(job("runPolicy: {startupTimeoutSeconds: 60}"))
    w.settle()
    w.worker(0)
    w.worker(1, "Pending")
    w.later(59)
    w.settle()
    assert w.phase == "Starting"
    w.later(1)
    w.settle()
    assert w.condition("Failed")[:2] == ("True", "StartupTimeout")


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_workers_that_became_ready_while_nobody_looked_are_not_late(world: type[World], phase: str) -> None:
    w = world(job("runPolicy: {startupTimeoutSeconds: 60}"))
    w.settle()
    w.later(120)
    w.worker(0, phase)
    w.worker(1)
    w.settle()
    assert w.phase == "Running"


def test_a_deadline_is_checked_in_time_after_kais_removal(world: type[World]) -> None:
    w = world(job("runPolicy: {activeDeadlineSeconds: 20}"), queue="{image: a, kaiQueue: x}")
    w.settle()
    w.runs()
    w.kai(False)
    w.settle()
    assert w.look_again_s() == 20


def test_a_deadline_is_checked_in_time_despite_a_refusal(world: type[World]) -> None:
    w = world.running(elastic(more="runPolicy: {activeDeadlineSeconds: 20}"), 3)
    refusal = Refusal("Job", "demo", "Refused", "no")
    w.refuse = lambda kind, name: refusal if kind == "Job" else None
    w.edit(num_nodes=4)
    w.settle()
    assert again_s(w.last, [refusal]) == 20
    assert again_s(Idle(), [refusal]) == 60
    assert again_s(w.last, []) == w.look_again_s()


def test_time_between_loss_and_the_operators_return_is_not_active(world: type[World]) -> None:
    w = world.running(job("runPolicy: {activeDeadlineSeconds: 300}"))
    w.later(3600)
    w.worker_fails(1, 42, after_s=100)
    w.incident_settles()
    assert (w.attempt, w.status.active_seconds) == (1, 100)
    w.later(10)
    w.old_pods_go()
    w.runs()


def test_no_attempt_follows_once_the_active_time_is_used_up(world: type[World]) -> None:
    w = world.running(job("runPolicy: {activeDeadlineSeconds: 300}"))
    w.later(300)
    w.worker_fails(1, 42, after_s=300)
    w.incident_settles()
    assert w.condition("Failed")[:2] == ("True", "DeadlineExceeded")
    assert w.status.active_seconds == 300
    assert w.has("Job", "demo"), "the attempt that failed stays to be read"
    w.later(1000)
    w.settle()
    assert not w.has("Job", "demo-r1")


@pytest.mark.parametrize("lost", [False, True], ids=["", "template lost"])
def test_workers_that_are_done_at_the_deadline_have_succeeded(world: type[World], lost: bool) -> None:
    w = world.running(job("runPolicy: {activeDeadlineSeconds: 300}"))
    if lost:
        w.template_goes()
    w.later(300)
    w.workers_succeed()
    w.settle()
    assert w.phase == "Succeeded"


def test_a_deadline_does_not_end_a_complete_job(
    world: type[World],
) -> None:
    """The deadline passes before the ends of the workers are seen."""
    w = world.running(job("runPolicy: {activeDeadlineSeconds: 300}"))
    w.later(299)
    w.job_is("Complete")
    w.settle()
    w.later(1)
    w.settle()
    assert w.phase == "Running"
    w.succeeds()
    w.settle()
    assert w.phase == "Succeeded"


def test_a_deadline_does_not_undo_the_success_of_worker_0(
    world: type[World],
) -> None:
    """The deadline passes while the other workers stop; the failure of one had opened an incident."""
    w = world.running(elastic(more="runPolicy: {activeDeadlineSeconds: 300}"), 3)
    w.later(298)
    w.worker_fails(1, 1, after_s=298)
    w.settle()
    assert w.phase == "Restarting"
    w.worker(0, "Succeeded")
    w.settle()
    w.later(2)
    w.settle()
    w.job_is("Complete")
    w.worker(2, "Succeeded")
    w.settle()
    assert (w.phase, w.restarts.total) == ("Succeeded", 0)


def test_the_end_also_stops_earlier_attempts_that_are_kept(world: type[World]) -> None:
    w = world.running(elastic(more="runPolicy: {activeDeadlineSeconds: 300, podRetention: All}"), 3)
    w.later(300)
    w.worker_fails(1, 42, after_s=300)
    w.step()
    w.later(5)
    w.settle()
    assert w.phase == "Failed"
    assert w.stopped()


def test_workers_that_were_ready_once_are_not_late(world: type[World]) -> None:
    w = world.running(job("runPolicy: {startupTimeoutSeconds: 60}"))
    w.later(100)
    w.worker(0, conditions=[])
    w.settle()
    assert w.phase == "Starting"
