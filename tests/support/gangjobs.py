"""Jobs that wait for a gang scheduler, for the tests of what the two say to each other."""

from typing import Any

from world import World

from torchctl.controllers.gangs.volcano import FrozenVolcano

__all__ = ["ELASTIC", "PREEMPTED", "QUEUE", "TRAIN", "TWO", "group_in", "queued"]

QUEUE = "{image: a:1, nodeResources: {gpus: 8}, scheduling: {volcanoQueue: train}}"
TWO = "{jobQueue: research, numNodes: 2, command: a}"
ELASTIC = "{jobQueue: research, numNodes: 3, command: a, elastic: {minNodes: 2, maxNodes: 4}}"
TRAIN = FrozenVolcano(queue="train", gang=True)
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "volcano: ..."}


def queued(world: type[World], job: str = TWO, queue: str = QUEUE) -> World:
    """A job that was started and waits for Volcano."""
    w = world(job, queue)
    w.settle()
    return w


def group_in(w: World) -> dict[str, Any]:
    (group,) = (body for (kind, _), body in w.objects.items() if kind == "PodGroup")
    return group
