"""A job is suspended and resumed without an incident."""

from datetime import timedelta

import pytest
from world import World, elastic, job


def test_it_is_written_down_before_the_pods_are_stopped(world: type[World]) -> None:
    w = world.running(job())
    w.edit(suspend=True)
    w.step()
    assert (w.phase, w.last.actions.children) == ("Suspended", ())
    w.step()
    assert w.stopped()
    for index in range(2):
        w.worker_fails(index, 143, metadata=w.told())
    w.job_is("Failed", "BackoffLimitExceeded")
    w.settle()
    assert (w.phase, w.restarts.total) == ("Suspended", 0)


def test_a_job_suspended_unseen_still_has_its_start(world: type[World]) -> None:
    """Nobody saw the job run before it was suspended."""
    w = world(job())
    while not w.has("Job", "demo"):
        w.step()
    made = w.now
    w.later(60)
    w.edit(suspend=True)
    w.settle()
    w.edit(suspend=False)
    w.settle()
    assert (w.attempt, w.status.start_time) == (1, made)


@pytest.mark.proves("TorchrunJob.spec.suspend")
def test_resuming_is_a_new_attempt_and_no_incident(world: type[World]) -> None:
    w = world.running(job())
    w.later(100)
    w.edit(suspend=True)
    w.settle()
    w.later(1000)
    w.told_to_stop(0)
    w.edit(suspend=False)
    w.settle()
    assert (w.phase, w.attempt) == ("Restarting", 1)
    assert not w.has("Job", "demo-r1")
    w.old_pods_go()
    w.runs()
    assert (w.attempt, w.restarts.total) == (1, 0)
    assert w.status.active_seconds == 100
    assert not w.has("Job", "demo")


def test_a_job_created_suspended_only_prepares_its_workspace(world: type[World]) -> None:
    w = world(job("suspend: true, volumes: {workspace: {source: git, url: 'https://git.test/a'}}"))
    w.settle()
    assert {kind for kind, _ in w.objects} <= {"ControllerRevision", "PersistentVolumeClaim", "Pod", "Service"}
    assert w.has("Pod", "demo-sync-0")
    assert not w.has("Job", "demo")
    w.edit(suspend=False)
    w.settle()
    w.sync_serves()
    w.settle()
    assert w.attempt == 0
    assert w.has("Job", "demo")


def test_a_suspended_job_names_its_template_first(world: type[World]) -> None:
    """Nothing is made from the template before that."""
    w = world(job("suspend: true"), queue=None)
    w.settle()
    assert w.phase == "Suspended"
    w.has_queue("image: trainer:1")
    w.step()
    assert w.last.actions.children == ()
    w.settle()
    assert [kind for kind, _ in w.objects] == ["ControllerRevision"]


def test_without_a_gang_scheduler_no_attempt_is_ever_queued(world: type[World]) -> None:
    w = world.running(job())
    w.edit(suspend=True)
    w.settle()
    w.edit(suspend=False)
    w.settle()
    w.old_pods_go()
    w.runs()
    w.worker_fails(1, 42)
    w.incident_settles()
    w.later(10)
    w.old_pods_go(1)
    w.runs()
    later = world(job("suspend: true"))
    later.settle()
    later.edit(suspend=False)
    later.settle()
    assert "Queued" not in w.log + later.log
    assert "Restarting" not in later.log


def test_workers_that_cannot_be_stopped_are_not_suspended(world: type[World]) -> None:
    """Somebody deleted the template, and the queue is another one by now."""
    w = world.running(job())
    w.template_goes()
    w.edit(suspend=True)
    w.settle()
    assert (w.phase, w.stopped()) == ("Running", False)


def test_flips_within_a_moment_end_as_the_last_one_says(world: type[World]) -> None:
    w = world.running(job())
    for wanted in (True, False, True, False, True):
        w.edit(suspend=wanted)
        w.step()
    w.settle()
    assert w.phase == "Suspended"
    w.edit(suspend=False)
    w.settle()
    w.old_pods_go()
    w.runs()
    assert w.restarts.total == 0


def test_trainers_that_exit_0_when_suspended_have_not_succeeded(world: type[World]) -> None:
    w = world.running(job())
    w.edit(suspend=True)
    w.settle()
    w.later(3)
    w.pod_goes(0, 1)
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Suspended"


def test_workers_that_were_never_stopped_are_believed_to_succeed(world: type[World]) -> None:
    """The operator died after it had written Suspended, and before it told the Job."""
    w = world.running(job())
    w.edit(suspend=True)
    w.step()
    assert (w.phase, w.stopped()) == ("Suspended", False)
    w.later(3600)
    w.workers_succeed()
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"


@pytest.mark.parametrize(("text", "done"), [(job(), 2), (elastic(2), 1)])
def test_a_job_whose_workers_are_done_is_not_suspended(world: type[World], text: str, done: int) -> None:
    w = world.running(text)
    w.workers_succeed(done)
    w.edit(suspend=True)
    w.settle()
    assert (w.phase, w.stopped()) == ("Succeeded", False)


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(("text", "done"), [(job(), 2), (elastic(2), 1)])
def test_workers_that_succeeded_before_their_job_was_stopped_are_believed(
    world: type[World], text: str, done: int, resumed: bool
) -> None:
    w = world.running(text)
    w.edit(suspend=True)
    w.settle()
    assert w.phase == "Suspended"
    w.workers_succeed(done)
    w.edit(suspend=not resumed)
    w.settle()
    w.later(2)
    w.job_is("Complete")
    w.settle()
    assert (w.phase, w.attempt) == ("Succeeded", 0)


def test_workers_of_which_only_one_had_succeeded_before_have_not(world: type[World]) -> None:
    w = world.running(job())
    w.worker(0, "Succeeded")
    w.edit(suspend=True)
    w.settle()
    w.later(3)
    w.pod_goes(1)
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Suspended"


def test_workers_that_had_succeeded_before_are_believed(world: type[World]) -> None:
    w = world.running(job())
    w.later(10)
    w.edit(suspend=True)
    w.settle()
    w.pod_goes(0, 1)
    w.now -= timedelta(seconds=5)
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"
