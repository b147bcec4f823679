"""What a person reads of a job: the column Workers, and the Events."""

import pytest
from world import World

TWO = "{jobQueue: research, numNodes: 2, command: python train.py, runPolicy: {restartPolicy: Never}}"
UNEVEN = "{jobQueue: research, numGPUs: 17, command: python train.py}"


def test_workers_of_a_success_count_as_succeeded(world: type[World]) -> None:
    """The pods of the workers are gone."""
    w = world(TWO)
    w.settle()
    w.worker(0)
    w.worker(1, "Succeeded")
    w.settle()
    assert w.status.workers_status == "1/2 running"
    w.pod_goes(0)
    w.job_is("Complete")
    w.settle()
    assert w.status.workers_status == "2/2 succeeded"


def test_a_job_that_failed_says_how_many_workers_did(world: type[World]) -> None:
    w = world(TWO)
    w.settle()
    w.worker(0)
    w.worker_fails(1)
    w.incident_settles()
    assert (w.phase, w.status.workers_status) == ("Failed", "1/2 failed")


def test_the_events_of_a_good_run_tell_its_story(world: type[World]) -> None:
    w = world(TWO)
    w.settle()
    for index in (0, 1):
        w.worker(index)
    w.settle()
    w.succeeds()
    w.settle()
    assert w.events == [
        ("Normal", "Starting", "all is ready for the workers"),
        ("Normal", "Running", "all 2 workers of Job demo are ready"),
        ("Normal", "Succeeded", "every worker of Job demo exited 0"),
    ]


@pytest.mark.parametrize("queue", [None, "{image: trainer:1, nodeResources: {gpus: 8}}"], ids=["no queue", "uneven"])
def test_a_job_that_waits_tells_why_and_nothing_else(world: type[World], queue: str | None) -> None:
    w = world(UNEVEN, queue)
    w.settle()
    reason = "QueueNotFound" if queue is None else "ImpossibleGPUCount"
    assert [(type_, told) for type_, told, _ in w.events] == [("Warning", reason)]
