"""What a job's conditions say of one worker, one pod, one GPU."""

import pytest
from world import World

ONE = "{jobQueue: research, numNodes: 1, command: python train.py}"
TWO = ONE.replace("1", "2")
ELASTIC = "{jobQueue: research, numNodes: %d, command: python train.py, elastic: {minNodes: %d, maxNodes: 3}}"
GANG = "{image: a:1, kaiQueue: gpus, nodeResources: {gpus: %d}}"


def test_one_worker_starts_and_is_ready(world: type[World]) -> None:
    w = world(ONE)
    w.settle()
    assert w.message("WorkersReady") == "0 of 1 worker of Job demo runs"
    w.worker(0)
    w.settle()
    assert w.message("WorkersReady") == "the worker of Job demo is ready"


def test_two_workers_are_ready(world: type[World]) -> None:
    w = world(TWO)
    w.settle()
    w.worker(0)
    w.settle()
    assert w.message("WorkersReady") == "1 of 2 workers of Job demo run"
    w.worker(1)
    w.settle()
    assert w.message("WorkersReady") == "all 2 workers of Job demo are ready"


def test_one_pod_is_missing(world: type[World]) -> None:
    w = world(ONE)
    w.settle()
    w.later(40)
    w.settle()
    assert w.message("WorkersReady").startswith("Job demo has 0 of 1 pod, a quota or a policy may refuse it: ")


def test_one_ready_worker_is_below_an_elastic_jobs_minimum(world: type[World]) -> None:
    w = world(ELASTIC % (1, 1))
    w.settle()
    w.worker(0)
    w.settle()
    assert w.message("WorkersReady") == "1 of 1 worker of Job demo is ready"
    w = world(ELASTIC % (2, 2))
    w.settle()
    for index in (0, 1):
        w.worker(index)
    w.settle()
    assert w.message("WorkersReady") == "2 of 2 workers of Job demo are ready"
    w.worker(1, "Pending")
    w.settle()
    assert w.message("WorkersReady") == ("1 worker of Job demo is ready, at least 2 have to be: waits for others")
    w.later(1000)
    w.settle()
    assert w.failure.message == ("Job demo has 1 ready worker, elastic.minNodes is 2: no replacement came")


@pytest.mark.parametrize(
    ("job", "gpus", "waits", "placed"),
    [
        (ONE, 1, "waits for 1 GPU in KAI queue gpus", "the pod is placed"),
        (ONE, 0, "waits for 1 node in KAI queue gpus", "the pod is placed"),
        (TWO, 0, "waits for 2 nodes in KAI queue gpus", "all 2 pods are placed"),
        (ELASTIC % (1, 1), 0, "waits for 1 node in KAI queue gpus", "placed pods: 1, of 1 that is enough"),
        (ELASTIC % (2, 2), 0, "waits for 2 nodes in KAI queue gpus", "placed pods: 2, of 2 that are enough"),
    ],
)
def test_a_gang_of_one_waits_and_is_placed(world: type[World], job: str, gpus: int, waits: str, placed: str) -> None:
    w = world(job, GANG % gpus)
    w.settle()
    assert w.message("Admitted") == waits
    for index in range(w.nodes):
        w.worker(index, conditions=[{"type": "PodScheduled", "status": "True"}])
    w.settle()
    assert w.message("Admitted") == placed
