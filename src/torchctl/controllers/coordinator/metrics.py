"""The coordinator's Prometheus metrics. Their labels are queues and cohorts, which bounds the number of series."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from torchctl.controllers.coordinator.standing import Booked, Loss, Standing
from torchctl.runtime.kinds import Key

__all__ = ["CoordinatorMetrics"]

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
UNITS = {"gpus": ("gpus", 1), "cpus": ("cpus", 1000), "memory": ("memory_bytes", 1), "jobs": ("jobs", 1)}
"""The name of a resource in a label, and how many of what is booked are one of it."""


class CoordinatorMetrics:
    """The series, registered with `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        queue, name = ("namespace", "queue"), "torchctl_coordinator"
        self.decision_seconds = Histogram(
            f"{name}_decision_seconds",
            "How long it took to decide who is let in, from the caches to the records to write.",
            registry=registry,
            buckets=BUCKETS,
        )
        self._starts = Counter(f"{name}_starts_total", "Jobs that were let in.", queue, registry=registry)
        self._losses = Counter(
            f"{name}_losses_total", "Jobs that lost their place, by reason.", ("reason",), registry=registry
        )
        for reason in Loss:
            self._losses.labels(reason)
        self._waiting = Gauge(f"{name}_waiting_jobs", "Jobs that wait to be let in.", queue, registry=registry)
        self._let_in = Gauge(
            f"{name}_let_in_jobs", "Jobs that are let in and have not ended.", queue, registry=registry
        )
        self._queue_used = Gauge(
            f"{name}_queue_used", "What a queue's jobs hold.", (*queue, "resource"), registry=registry
        )
        self._queue_quota = Gauge(f"{name}_queue_quota", "A queue's quota.", (*queue, "resource"), registry=registry)
        cohort = ("cohort", "resource")
        self._cohort_used = Gauge(
            f"{name}_cohort_used", "What the jobs of a cohort's queues hold.", cohort, registry=registry
        )
        self._cohort_quota = Gauge(
            f"{name}_cohort_quota", "The quotas of a cohort's queues together.", cohort, registry=registry
        )

    def wrote(self, job: str, let_in: Mapping[str, str], losses: Mapping[str, Loss]) -> None:
        """Counts a record that was written, if by it the job was let in or lost its place.

        Args:
            let_in: The queues of the jobs that are let in, by the key of the job.
            losses: Why jobs lose their place, by the same.
        """
        if job in let_in:
            self._starts.labels(*_names(let_in[job])).inc()
        if job in losses:
            self._losses.labels(losses[job]).inc()

    def show(self, now: Standing) -> None:
        """Shows how the queues stand. Series of queues and cohorts that are gone end."""
        for gauge, figures in ((self._waiting, now.waiting), (self._let_in, now.let_in)):
            gauge.clear()
            for queue, jobs in figures.items():
                gauge.labels(*_names(queue)).set(jobs)
        _show({_names(queue): booked for queue, booked in now.queues.items()}, self._queue_used, self._queue_quota)
        _show({(cohort,): booked for cohort, booked in now.cohorts.items()}, self._cohort_used, self._cohort_quota)


def _show(figures: Mapping[tuple[str, ...], tuple[Booked, ...]], used: Gauge, quota: Gauge) -> None:
    used.clear()
    quota.clear()
    for names, booked in figures.items():
        for of in booked:
            resource, unit = UNITS[of.resource]
            used.labels(*names, resource).set(of.used / unit)
            quota.labels(*names, resource).set(of.quota / unit)


def _names(queue: str) -> tuple[str, str]:
    key = Key(*queue.split("/", 1))
    return key.namespace, key.name
