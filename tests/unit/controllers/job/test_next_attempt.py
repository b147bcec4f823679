"""queueUpdatePolicy NextAttempt, if the queue as it is now makes no template."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from world import World

JOB = "{jobQueue: research, numNodes: 3, command: python train.py, queueUpdatePolicy: NextAttempt}"


def smaller_operator(w: World) -> None:
    w.settings = replace(w.settings, max_nodes=2)


def queue_without_an_image(w: World) -> None:
    w.has_queue("{}")


def running(world: type[World]) -> World:
    w = world(JOB)
    w.settle()
    w.runs(3)
    return w


def fails(w: World) -> None:
    """A worker fails, its attempt comes to an end, and the back-off is over."""
    w.worker_fails(1)
    w.settle()
    w.later(6)
    w.settle()
    w.remove_old_pods()
    w.later(600)
    w.settle()


@pytest.mark.parametrize(("change", "words"), [(smaller_operator, "max-nodes"), (queue_without_an_image, "image")])
def test_a_job_keeps_its_template_if_none_can_be_made(
    world: type[World], change: Callable[[World], None], words: str
) -> None:
    w = running(world)
    revision = w.status.queue_revision
    change(w)
    w.settle()
    assert w.phase == "Running"
    assert w.condition("Accepted")[:2] == ("True", "TemplateStays")
    fails(w)
    assert w.status.queue_revision == revision
    assert w.condition("Accepted")[:2] == ("True", "TemplateStays")
    assert words in w.message("Accepted")
    for index in range(3):
        w.worker(index)
    w.settle()
    assert (w.phase, w.attempt) == ("Running", 1)


def test_the_next_attempt_takes_a_queue_that_was_corrected(world: type[World]) -> None:
    w = running(world)
    queue_without_an_image(w)
    w.settle()
    w.has_queue("image: trainer:2")
    w.settle()
    assert w.condition("Accepted")[:2] == ("True", "Accepted")
    fails(w)
    assert w.trainer("demo-r1")["image"] == "trainer:2"
