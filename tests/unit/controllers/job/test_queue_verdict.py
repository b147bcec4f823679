"""A job that comes together with its queue: it must not run in a KAI Queue before it is known whose that is."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from world import World

from torchctl.api.queue import QueueStatus
from torchctl.runtime.kinds import Condition

QUEUE = "{image: trainer:1, kaiQueue: train}"
JOB = "{jobQueue: research, numNodes: 1, command: python train.py}"


@pytest.fixture
def fresh(world: type[World]) -> Any:
    """The queue's own reconciler has not looked at it yet."""
    return with_conditions(world(JOB, QUEUE))


def with_conditions(subject: Any, *conditions: Condition) -> Any:
    queue = msgspec.structs.replace(subject.seen.queue, status=QueueStatus(conditions=conditions))
    subject.seen = replace(subject.seen, queue=queue)
    return subject


def verdict(reason: str, generation: int) -> Condition:
    status = "True" if reason == "KaiQueueReady" else "False"
    return Condition("KaiQueueReady", status, reason, "said so", observed_generation=generation)


def test_a_job_waits_until_it_is_known_whose_the_kai_queue_is(fresh: Any) -> None:
    fresh.step()
    assert fresh.condition("QueueFound")[:2] == ("False", "WaitingForQueue")
    assert fresh.seen.job.status.queue_revision == ""
    assert not fresh.objects


def test_a_verdict_on_an_earlier_spec_does_not_count(fresh: Any) -> None:
    with_conditions(fresh, verdict("KaiQueueReady", 0)).step()
    assert fresh.condition("QueueFound")[1] == "WaitingForQueue"


def test_a_good_verdict_lets_it_go_on_and_a_conflict_does_not(fresh: Any) -> None:
    with_conditions(fresh, verdict("Conflict", 1)).step()
    assert fresh.condition("QueueFound")[1] == "QueueNotReady"
    with_conditions(fresh, verdict("KaiQueueReady", 1)).step()
    assert fresh.seen.job.status.queue_revision != ""


def test_waiting_is_no_event(fresh: Any) -> None:
    fresh.step()
    assert not [event for event in fresh.events if event[1] == "WaitingForQueue"]
