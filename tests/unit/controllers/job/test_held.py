"""What somebody else's suspension of a job's child Job does to the job: it waits, and nothing is lost."""

from dataclasses import replace

import msgspec
import pytest
from world import World

TWO = "{jobQueue: research, numNodes: 2, command: x, runPolicy: {activeDeadlineSeconds: 1000}}"
ELASTIC = "{jobQueue: research, numNodes: 2, command: x, elastic: {minNodes: 2, maxNodes: 2}}"


def running(world: type[World], text: str = TWO) -> World:
    w = world(text)
    w.settle()
    for index in range(2):
        w.worker(index)
    w.settle()
    return w


def suspend(w: World, wanted: bool, queue: str = "") -> None:
    """Another field manager writes the Job; its controller then clears or sets startTime."""
    job = w.worker_job
    meta = job.metadata
    if queue:
        meta = msgspec.structs.replace(meta, labels={**meta.labels, "kueue.x-k8s.io/queue-name": queue})
    status = msgspec.structs.replace(job.status, start_time=None if wanted else w.now)
    w.worker_job_has(metadata=meta, spec=job.spec | {"suspend": wanted}, status=status)


def test_the_intent_says_nothing_of_suspend(world: type[World]) -> None:
    assert "suspend" not in running(world).spec("Job", "demo")


@pytest.mark.parametrize(
    ("queue", "words"), [("", "--show-managed-fields"), ("gpus", "Kueue has suspended Job demo and admits it")]
)
def test_the_condition_names_who_suspended_the_job(world: type[World], queue: str, words: str) -> None:
    w = running(world)
    suspend(w, True, queue)
    w.settle()
    assert w.condition("Admitted")[:2] == ("False", "SuspendedByOthers")
    assert words in w.message("Admitted")
    assert (w.phase, w.reason("WorkersReady")) == ("Queued", "SuspendedByOthers")


@pytest.mark.parametrize("text", [TWO, ELASTIC])
def test_pods_that_a_suspension_deletes_are_no_incident(world: type[World], text: str) -> None:
    """Their deletion may be seen before the suspension is: the Job's controller takes its finalizer off them."""
    w = running(world, text)
    for index in range(2):
        w.worker(index, metadata=w.told() | {"finalizers": []})
    w.settle()
    assert w.phase == "Running"
    suspend(w, True)
    w.settle()
    w.pod_goes(0, 1)
    w.later(600)
    w.settle()
    assert (w.phase, w.restarts.total, w.status.failure) == ("Queued", 0, None)


def test_a_released_elastic_job_has_its_time_to_come_back(world: type[World]) -> None:
    w = running(world, ELASTIC)
    suspend(w, True)
    w.pod_goes(0, 1)
    w.settle()
    w.later(600)
    suspend(w, False)
    w.settle()
    assert (w.phase, w.status.incident) == ("Starting", None)
    for index in range(2):
        w.worker(index)
    w.settle()
    assert (w.phase, w.attempt) == ("Running", 0)


def test_a_job_is_held_until_its_controller_has_released_it(world: type[World]) -> None:
    w = running(world, ELASTIC)
    suspend(w, True)
    w.pod_goes(0, 1)
    w.settle()
    w.later(600)
    w.job_is("Suspended", "JobSuspended")
    w.worker_job_has(spec={"suspend": False})
    w.settle()
    assert (w.phase, w.status.incident) == ("Queued", None)


def test_time_for_which_a_job_is_held_does_not_count(world: type[World]) -> None:
    w = running(world)
    w.later(100)
    suspend(w, True)
    w.settle()
    w.later(5000)
    w.settle()
    assert (w.phase, w.status.active_seconds) == ("Queued", 100)
    suspend(w, False)
    w.settle()
    assert (w.phase, w.status.active_seconds) == ("Running", 100)


def test_a_released_job_of_an_earlier_attempt_is_ended(world: type[World]) -> None:
    """A queueing system may release it while the next attempt runs."""
    w = running(world, ELASTIC)
    w.worker_fails(1, 42)
    w.settle()
    suspend(w, True)
    w.later(5)
    w.settle()
    w.later(20)
    w.remove_old_pods("Running")
    w.settle()
    assert (w.attempt, w.stopped()) == (1, False)
    for index in range(2):
        w.worker(index)
    w.settle()
    (old,) = w.seen.old_jobs
    released = msgspec.structs.replace(old, spec=old.spec | {"suspend": False})
    w.seen = replace(w.seen, old_jobs=(released,))
    w.settle()
    assert (w.phase, w.stopped()) == ("Running", True)


def test_a_held_job_suspended_by_its_user_ends_once_released(world: type[World]) -> None:
    w = running(world)
    suspend(w, True)
    w.settle()
    w.edit(suspend=True)
    w.settle()
    assert (w.phase, w.stopped()) == ("Suspended", False)
    suspend(w, False)
    w.settle()
    assert (w.phase, w.stopped()) == ("Suspended", True)


def test_a_released_elastic_job_may_meet_at_another_worker_0(world: type[World]) -> None:
    """The worker 0 of before was stopped by whoever suspended the Job: it was not lost."""
    w = world(ELASTIC)
    w.settle()
    for index in range(2):
        w.worker(index, metadata={"uid": f"first-{index}"})
    w.settle()
    assert w.status.host_uid == "first-0"
    suspend(w, True)
    w.settle()
    w.pod_goes(0, 1)
    w.later(600)
    w.settle()
    suspend(w, False)
    w.settle()
    for index in range(2):
        w.worker(index, metadata={"uid": f"second-{index}", "creationTimestamp": w.now})
    w.settle()
    status = w.status
    assert (w.phase, status.incident, status.restarts.total, status.host_uid) == ("Running", None, 0, "second-0")
