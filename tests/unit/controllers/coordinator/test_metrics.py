"""The coordinator's metrics say how queues stand, and count starts and losses once they are written."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from torchctl.controllers.coordinator.decision import Decision, Preempt, TakeBack
from torchctl.controllers.coordinator.metrics import CoordinatorMetrics
from torchctl.controllers.coordinator.standing import Booked, Loss, losses, standing
from torchctl.controllers.coordinator.values import Demand, Holding, Limits, PodShape, Queue, State, Waiting

POD = PodShape((("nvidia.com/gpu", 8),))
GIB = 2**30


def waits(name: str, queue: str = "team/a") -> Waiting:
    demand = Demand(gpus=8, cpus=4000, memory=GIB)
    return Waiting(key=f"team/{name}", queue=queue, namespace="team", since_s=0.0, pods=1, shape=POD, demand=demand)


def holds(name: str, queue: str = "team/a") -> Holding:
    gang = waits(name, queue)
    return Holding(key=gang.key, queue=queue, namespace="team", pods=1, shape=POD, demand=gang.demand, let_in_s=0.0)


STATE = State(
    now_s=0.0,
    waiting=(waits("one"), waits("lost", "team/gone")),
    holdings=(holds("two"), holds("three", "team/b")),
    queues=(
        Queue(key="team/a", cohort="c", quota=Limits(gpus=16, cpus=8000)),
        Queue(key="team/b", cohort="c", quota=Limits(gpus=8)),
        Queue(key="team/empty"),
    ),
)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_standing_counts_jobs_and_what_they_hold() -> None:
    found = standing(STATE)
    assert found.waiting == {"team/a": 1, "team/b": 0, "team/empty": 0}
    assert found.let_in == {"team/a": 1, "team/b": 1, "team/empty": 0}
    assert found.queues == {
        "team/a": (Booked("gpus", 8, 16), Booked("cpus", 4000, 8000)),
        "team/b": (Booked("gpus", 8, 8),),
        "team/empty": (),
    }
    assert found.cohorts == {"c": (Booked("gpus", 16, 24), Booked("cpus", 4000, 8000))}


def test_figures_are_in_base_units(registry: CollectorRegistry) -> None:
    CoordinatorMetrics(registry).show(standing(STATE))
    queue = {"namespace": "team", "queue": "a"}
    assert registry.get_sample_value("torchctl_coordinator_waiting_jobs", queue) == 1
    assert registry.get_sample_value("torchctl_coordinator_let_in_jobs", queue) == 1
    assert registry.get_sample_value("torchctl_coordinator_queue_used", {**queue, "resource": "cpus"}) == 4
    assert registry.get_sample_value("torchctl_coordinator_queue_quota", {**queue, "resource": "cpus"}) == 8
    assert registry.get_sample_value("torchctl_coordinator_cohort_used", {"cohort": "c", "resource": "gpus"}) == 16
    assert registry.get_sample_value("torchctl_coordinator_cohort_quota", {"cohort": "c", "resource": "gpus"}) == 24


def test_series_of_a_queue_that_is_gone_end(registry: CollectorRegistry) -> None:
    metrics = CoordinatorMetrics(registry)
    metrics.show(standing(STATE))
    metrics.show(standing(replace(STATE, queues=STATE.queues[1:])))
    queues = {
        sample.labels["queue"] for family in registry.collect() for sample in family.samples if "queue" in sample.labels
    }
    assert queues == {"b", "empty"}


def test_a_loss_has_the_reason_of_its_preemption() -> None:
    decision = Decision(
        preempt=(Preempt("team/two", "team/one"), Preempt("team/three", "team/one")),
        take_back=(TakeBack("team/four", 1),),
    )
    assert losses(STATE, decision) == {
        "team/two": Loss.PRIORITY,
        "team/three": Loss.RECLAIM,
        "team/four": Loss.NOT_PLACED,
    }


def test_starts_and_losses_count_once_written(registry: CollectorRegistry) -> None:
    metrics = CoordinatorMetrics(registry)
    for reason in Loss:
        assert registry.get_sample_value("torchctl_coordinator_losses_total", {"reason": reason}) == 0
    for job in ("team/one", "team/two", "team/nobody"):
        metrics.wrote(job, {"team/one": "team/a"}, {"team/two": Loss.RECLAIM})
    queue = {"namespace": "team", "queue": "a"}
    assert registry.get_sample_value("torchctl_coordinator_starts_total", queue) == 1
    assert registry.get_sample_value("torchctl_coordinator_losses_total", {"reason": "Reclaim"}) == 1
    assert registry.get_sample_value("torchctl_coordinator_losses_total", {"reason": "Priority"}) == 0
