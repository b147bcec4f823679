"""Preemption is told from a deletion by a person: by what the scheduler says, or by when it says it evicted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from world import World

from torchctl.api.kube import KaiPodGroup
from torchctl.controllers.gangs.evictions import LAST_EVICTION, evicted_around, last_eviction
from torchctl.runtime.kinds import ObjectMeta

TOLD = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def group(evicted: str | None) -> KaiPodGroup:
    return KaiPodGroup(ObjectMeta(name="pg", annotations={LAST_EVICTION: evicted} if evicted is not None else {}))


def at(seconds: float) -> KaiPodGroup:
    return group((TOLD + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z"))


@pytest.mark.parametrize(
    ("reason", "status", "evicted_s", "cause"),
    [
        ("PreemptionByScheduler", "True", None, "Preempted"),
        ("PreemptionByScheduler", "False", None, "Deleted"),
        ("EvictionByEvictionAPI", "False", 0, "Preempted"),
        ("EvictionByEvictionAPI", "True", 0, "Evicted"),
        ("DeletionByTaintManager", "True", 0, "NodeLost"),
        ("TerminationByKubelet", "True", 0, "Evicted"),
    ],
)
def test_a_pods_own_condition_counts_before_kais_word(
    world: type[World], reason: str, status: str, evicted_s: int | None, cause: str
) -> None:
    """A disruption that was called off says nothing."""
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
    w.settle()
    w.worker(1)
    w.settle()
    conditions = [{"type": "DisruptionTarget", "status": status, "reason": reason}]
    w.worker(0, metadata=w.told(), conditions=conditions)
    if evicted_s is not None:
        told = (w.now + timedelta(seconds=evicted_s)).isoformat()
        w.seen = replace(w.seen, podgroup=group(told))
    w.settle()
    assert (w.incident.cause, w.failure.reason) == (cause, cause)


@pytest.mark.parametrize(("seconds", "so"), [(0, True), (-1, True), (15, True), (-15, True), (16, False), (-16, False)])
def test_a_plain_deletion_during_kais_eviction_is_kais(seconds: float, so: bool) -> None:
    assert evicted_around(at(seconds), TOLD) is so


@pytest.mark.parametrize("there", [None, group(None), group(""), group("yesterday")])
def test_a_plain_deletion_without_kais_word_is_a_persons(there: KaiPodGroup | None) -> None:
    assert not evicted_around(there, TOLD)
    assert last_eviction(there) is None


def test_a_pod_that_is_gone_counts_from_its_loss() -> None:
    """The time at which it was missed is compared with KAI's eviction."""
    assert evicted_around(at(0), TOLD)
    assert not evicted_around(at(0), TOLD + timedelta(minutes=5))


def test_a_time_without_a_zone_is_utc() -> None:
    assert last_eviction(group("2026-01-01T12:00:00")) == TOLD
