"""A job that comes together with its queue: it must not run in a scheduler's Queue before it is known whose that is."""

from dataclasses import replace

import msgspec
import pytest
from world import World

from torchctl.api.kube import KAI_PODGROUP
from torchctl.api.queue import QueueStatus
from torchctl.runtime.kinds import Condition

QUEUE = "{image: trainer:1, kaiQueue: train}"
JOB = "{jobQueue: research, numNodes: 1, command: python train.py}"


@pytest.fixture
def fresh(world: type[World]) -> World:
    """The queue's own reconciler has not looked at it yet."""
    return with_conditions(world(JOB, QUEUE))


def with_conditions(w: World, *conditions: Condition) -> World:
    queue = msgspec.structs.replace(w.queue, status=QueueStatus(conditions=conditions))
    w.seen = replace(w.seen, queue=queue)
    return w


def verdict(reason: str, generation: int) -> Condition:
    status = "True" if reason == "KaiQueueReady" else "False"
    return Condition("KaiQueueReady", status, reason, "said so", observed_generation=generation)


def test_a_job_waits_until_the_kai_queues_owner_is_known(fresh: World) -> None:
    fresh.step()
    assert fresh.condition("QueueFound")[:2] == ("False", "WaitingForQueue")
    assert fresh.status.queue_revision == ""
    assert not fresh.objects


def test_a_verdict_on_an_earlier_spec_does_not_count(fresh: World) -> None:
    with_conditions(fresh, verdict("KaiQueueReady", 0)).step()
    assert fresh.reason("QueueFound") == "WaitingForQueue"


def test_only_a_good_verdict_lets_the_job_go_on(fresh: World) -> None:
    """A conflict between queues holds the job."""
    with_conditions(fresh, verdict("Conflict", 1)).step()
    assert fresh.reason("QueueFound") == "QueueNotReady"
    with_conditions(fresh, verdict("KaiQueueReady", 1)).step()
    assert fresh.status.queue_revision != ""


def test_waiting_is_no_event(fresh: World) -> None:
    fresh.step()
    assert not [event for event in fresh.events if event[1] == "WaitingForQueue"]


def test_a_job_waits_for_the_verdict_on_a_volcano_queue(world: type[World]) -> None:
    """What is said of KAI's matters to no queue that has the operator make one of Volcano's."""
    queue = "{image: trainer:1, scheduling: {volcanoQueue: train, volcanoQueuePolicy: Manage}}"
    w = with_conditions(world(JOB, queue), verdict("KaiQueueReady", 1))
    w.step()
    assert w.condition("QueueFound")[1:] == (
        "WaitingForQueue",
        "waits until it is known whose Volcano Queue train of TorchrunQueue research is",
    )
    conflict = Condition("VolcanoQueueReady", "False", "Conflict", "theirs", observed_generation=1)
    with_conditions(w, conflict).step()
    assert w.reason("QueueFound") == "QueueNotReady"
    ready = Condition("VolcanoQueueReady", "True", "VolcanoQueueReady", "as asked", observed_generation=1)
    with_conditions(w, ready).step()
    assert w.status.queue_revision != ""


@pytest.mark.parametrize("reason", ["ForeignObject", "StillDeleting"])
def test_what_is_not_ours_holds_the_job(fresh: World, reason: str) -> None:
    with_conditions(fresh, verdict(reason, 1)).step()
    assert fresh.reason("QueueFound") == "QueueNotReady"


def test_a_scheduler_that_comes_later_is_looked_at_first(fresh: World) -> None:
    """The job is frozen while KAI is missing, and somebody has a KAI Queue of that name when it comes."""
    with_conditions(fresh, verdict("KaiNotInstalled", 1))
    fresh.seen = replace(fresh.seen, absent=frozenset({KAI_PODGROUP}))
    fresh.settle()
    assert fresh.reason("Admitted") == "KaiNotInstalled"
    fresh.seen = replace(fresh.seen, absent=frozenset())
    fresh.settle()
    assert fresh.condition("QueueFound")[1:] == (
        "WaitingForQueue",
        "waits until it is known whose KAI Queue train of TorchrunQueue research is: said so",
    )
    assert not fresh.has("PodGroup", "pg-demo-0")
    with_conditions(fresh, verdict("KaiQueueReady", 1))
    fresh.settle()
    assert fresh.has("Job", "demo")
