"""Storage of an elastic job: it goes by the most nodes that the job can have."""

from world import World

GIT = "{source: git, url: 'https://git.example.com/a.git'}"
ELASTIC = "{jobQueue: research, numNodes: 1, elastic: {minNodes: 1, maxNodes: 3}, command: python a.py%s}"


def test_an_elastic_job_that_may_grow_is_served(world: type[World]) -> None:
    w = world(ELASTIC % f", volumes: {{workspace: {GIT}}}", "image: trainer:1")
    w.settle()
    assert w.revision.data["workspace"]["distribution"] == "serve"


def test_a_growing_job_is_warned_of_checkpoints_on_one_node(world: type[World]) -> None:
    """An elastic job goes by the most nodes that it can have."""
    w = world(ELASTIC % "", "{image: trainer:1, storage: {checkpoints: {enabled: true}}}")
    w.settle()
    assert w.reason("Accepted") == "CheckpointsOnOneNode"
    assert "the job has up to 3 pods" in w.message("Accepted")
