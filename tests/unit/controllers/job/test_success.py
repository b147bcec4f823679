"""A job that succeeded is believed whatever is heard of it first."""

import pytest
from world import World, elastic, job


def test_a_job_that_succeeded_runs_no_workers(world: type[World]) -> None:
    """The cache is late with their ends."""
    w = world.running(elastic(2))
    w.worker(0, "Succeeded", conditions=[])
    w.job_is("Complete")
    w.settle()
    status = w.status
    assert (w.phase, status.workers_status) == ("Succeeded", "2/2 succeeded")
    assert (status.workers.succeeded, status.workers.running, status.nodes.ready) == (2, 0, 0)


@pytest.mark.parametrize(("text", "worker"), [(job(), 1), (elastic(2), 0)])
@pytest.mark.parametrize("evicted", [False, True])
def test_a_success_is_believed_once_all_ends_are_seen(
    world: type[World], text: str, worker: int, evicted: bool
) -> None:
    """Pods and Jobs are watched separately. The Job controller counts a trainer that exits 0 as it is evicted."""
    w = world.running(text)
    w.worker(1 - worker, "Succeeded")
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Running"
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": w.now}}}]
    w.worker(worker, "Succeeded", containerStatuses=ended, metadata=w.told() if evicted else {})
    w.settle()
    assert w.phase == ("Restarting" if evicted else "Succeeded")
