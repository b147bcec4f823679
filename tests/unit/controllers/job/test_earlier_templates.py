"""Templates of earlier attempts are deleted once status names another one."""

from dataclasses import replace

import msgspec
from world import EPOCH, World, job


def fails(w: World) -> None:
    """The attempt fails, and the next one is about to begin."""
    attempt = w.attempt
    w.worker_fails(1, 42, after_s=(w.now - EPOCH).total_seconds())
    w.worker(0, "Failed")
    w.settle()
    w.later(400)
    w.settle()
    assert w.attempt == attempt + 1


def templates(w: World) -> list[str]:
    return [name for kind, name in w.objects if kind == "ControllerRevision"]


def test_only_the_template_in_force_stays_after_many_edits(world: type[World]) -> None:
    """The queue is edited between attempts."""
    w = world.running(job("queueUpdatePolicy: NextAttempt, runPolicy: {maxRestarts: 9}"))
    for image in (2, 3, 3, 2):
        w.has_queue(f"image: trainer:{image}")
        fails(w)
        w.runs()
        assert templates(w) == [w.status.queue_revision]
        trainer = w.trainer(f"demo-r{w.attempt}")
        assert trainer["image"] == f"trainer:{image}"


def test_an_earlier_template_stays_until_its_successor_is_there(world: type[World]) -> None:
    """An earlier template goes only if status names another one that exists."""
    w = world.running(job("queueUpdatePolicy: NextAttempt"))
    first = w.status.queue_revision
    w.has_queue("image: trainer:2")
    w.worker_fails(1, 42)
    w.worker(0, "Failed")
    states = []
    for _ in range(12):
        w.later(5)
        w.step()
        states.append((w.status.queue_revision, *templates(w)))
    second = w.status.queue_revision
    assert list(dict.fromkeys(states)) == [
        (first, first),
        ("", first),
        (second, first),
        (second, first, second),
        (second, second),
    ]


def test_it_goes_by_its_uid_also_after_the_end(world: type[World]) -> None:
    w = world.running(job("queueUpdatePolicy: NextAttempt"))
    w.has_queue("image: trainer:2")
    fails(w)
    w.runs()
    named = w.revision
    older = msgspec.structs.replace(
        named, metadata=msgspec.structs.replace(named.metadata, name="demo-older", uid="uid-older"), revision=1
    )
    w.workers_succeed()
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"
    w.seen = replace(w.seen, old_revisions=(older,))
    w.step()
    assert ("ControllerRevision", "demo-older", "uid-older") in [
        (removal.kind.kind, removal.key.name, removal.uid) for removal in w.last.actions.remove
    ]
