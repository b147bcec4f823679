"""Preemption is told from a deletion by a person: by what the scheduler says, or by when it says it evicted."""

from datetime import UTC, datetime, timedelta

import pytest

from torchctl.api.kube import KaiPodGroup, Pod, PodCondition, PodStatus
from torchctl.controllers.job.failure.evictions import LAST_EVICTION, evicted_around, last_eviction, preempted
from torchctl.runtime.kinds import ObjectMeta

TOLD = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
GRACE_S = 30


def pod(*, told: datetime | None = TOLD, disrupted: str = "", status: str = "True") -> Pod:
    conditions = (PodCondition("DisruptionTarget", status, disrupted),) if disrupted else ()
    until = told + timedelta(seconds=GRACE_S) if told else None
    meta = ObjectMeta(
        name="demo-0-x", deletion_timestamp=until, deletion_grace_period_seconds=GRACE_S if told else None
    )
    return Pod(meta, status=PodStatus(conditions=conditions))


def group(evicted: str | None) -> KaiPodGroup:
    return KaiPodGroup(ObjectMeta(name="pg", annotations={LAST_EVICTION: evicted} if evicted is not None else {}))


def at(seconds: float) -> KaiPodGroup:
    return group((TOLD + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z"))


def test_a_pod_that_a_scheduler_says_it_preempted_was_preempted() -> None:
    assert preempted(pod(disrupted="PreemptionByScheduler"), None)
    assert preempted(pod(told=None, disrupted="PreemptionByScheduler"), group(None))


@pytest.mark.parametrize("reason", ["EvictionByEvictionAPI", "DeletionByTaintManager", "TerminationByKubelet"])
def test_a_pod_that_somebody_else_disrupted_was_not_preempted(reason: str) -> None:
    """KAI's evictions of that time do not matter."""
    assert not preempted(pod(disrupted=reason), at(0))


def test_a_disruption_that_was_called_off_says_nothing() -> None:
    assert not preempted(pod(disrupted="PreemptionByScheduler", status="False"), group(None))
    assert preempted(pod(disrupted="EvictionByEvictionAPI", status="False"), at(0))


@pytest.mark.parametrize(("seconds", "so"), [(0, True), (-1, True), (15, True), (-15, True), (16, False), (-16, False)])
def test_a_plain_deletion_during_kais_eviction_is_kais(seconds: float, so: bool) -> None:
    assert preempted(pod(), at(seconds)) is so


@pytest.mark.parametrize("there", [None, group(None), group(""), group("yesterday")])
def test_a_plain_deletion_without_kais_word_is_a_persons(there: KaiPodGroup | None) -> None:
    assert not preempted(pod(), there)
    assert last_eviction(there) is None


def test_a_pod_that_nobody_told_to_stop_was_not_preempted() -> None:
    """Other pods of its gang were preempted."""
    assert not preempted(pod(told=None), at(0))


def test_a_pod_that_is_gone_counts_from_its_loss() -> None:
    """The time at which it was missed is compared with KAI's eviction."""
    assert evicted_around(at(0), TOLD)
    assert not evicted_around(at(0), TOLD + timedelta(minutes=5))


def test_a_time_without_a_zone_is_utc() -> None:
    assert last_eviction(group("2026-01-01T12:00:00")) == TOLD
