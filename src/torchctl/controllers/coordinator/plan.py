"""Makes the coordinator's state out of observed objects. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from torchctl.api.job import TorchrunJob
from torchctl.api.jobstatus import Admission
from torchctl.api.quantity import NotAQuantity
from torchctl.api.queue import QueueCapacity
from torchctl.controllers.coordinator import values
from torchctl.controllers.coordinator.admitted import PodDefaults
from torchctl.controllers.coordinator.bounds import namespace_quota, queue_of
from torchctl.controllers.coordinator.jobgangs import (
    held_by,
    holding_of,
    holds,
    limited,
    queue_name,
    waiting_of,
    waits,
    was_let_in,
)
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.priorities import Priorities
from torchctl.controllers.coordinator.readings import Asked, OnNode, Readings
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.kinds import Key, key_of

__all__ = ["state_of"]

Template = Mapping[str, Any]

_ODD = "a field has another form than pods have it"


def state_of(
    observed: Observed, settings: CoordinatorSettings, now: datetime, readings: Readings | None = None
) -> values.State:
    """Returns what the decision is made from.

    Args:
        readings: What was read for an earlier decision, which saves reading it again.
    """
    readings = readings if readings is not None else Readings()
    nodes = readings.nodes(observed.nodes, observed.pods)
    jobs = _Jobs(observed, readings, _placed(nodes), now)
    waiting, holdings, unreadable, starts = [], [], [], []
    for job in observed.jobs:
        record = job.status.admission
        if record is not None and record.let_in_time is not None:
            turn = values.Turn(record.clock, record.position)
            starts.append(values.Start(queue_name(job), record.let_in_time.timestamp(), turn))
        match jobs.read(job):
            case values.Waiting() as gang:
                waiting.append(gang)
            case values.Holding() as gang:
                holdings.append(gang)
            case values.Unreadable() as gang:
                unreadable.append(gang)
    readings.keep(observed.templates)
    unknown: dict[str, list[str]] = {}
    for gang in sorted(unreadable):
        if gang.holds:
            unknown.setdefault(gang.queue, []).append(gang.key)
    return values.State(
        now_s=now.timestamp(),
        waiting=tuple(waiting),
        unreadable=tuple(unreadable),
        holdings=tuple(holdings),
        nodes=tuple(on.node for on in nodes if on.node is not None),
        queues=tuple(queue_of(queue, unknown.get(str(key_of(queue)), ())) for queue in observed.queues),
        namespace_quotas=tuple(map(namespace_quota, observed.quotas)),
        starts=tuple(starts),
        settings=settings,
    )


class _Jobs:
    """Reads jobs, with what their pods get at admission, and where these are."""

    def __init__(
        self, observed: Observed, readings: Readings, placed: Mapping[tuple[str, str], Mapping[str, int]], now: datetime
    ) -> None:
        self._templates, self._readings, self._placed, self._now = observed.templates, readings, placed, now
        self._priorities = Priorities(observed.priorities)
        self._defaults = _Defaults(observed, self._priorities.default_class)
        autoscaled = (queue for queue in observed.queues if queue.spec.capacity is QueueCapacity.AUTOSCALED)
        self._autoscaled = frozenset(str(key_of(queue)) for queue in autoscaled)
        readings.begin((self._autoscaled, observed.priorities, observed.limit_ranges, observed.runtimes))

    def read(self, job: TorchrunJob) -> values.Waiting | values.Holding | values.Unreadable | None:
        """Returns the gang of a job; None if it concerns nobody."""
        revision = Key(job.metadata.namespace, job.status.queue_revision)
        template = self._templates.get(revision)
        if template is None:
            # One that waits may be seen before its template. What was let in is the coordinator's, whatever is gone.
            return self._unreadable(job, "", f"no {revision}") if was_let_in(job) and not waits(job) else None
        known = self._readings.waiting(job)
        if known is not None:
            return known
        if not template.get("coordinated"):
            return None
        try:
            return self._gang(job, revision, template)
        except Exception as error:  # users write templates, and whatever is wrong with one must not stop all decisions
            why = str(error) if isinstance(error, NotAQuantity) else _ODD
            return self._unreadable(job, why, f"{type(error).__name__}: {error}")

    def _gang(self, job: TorchrunJob, revision: Key, template: Template) -> values.Waiting | values.Holding | None:
        """Returns the gang of a job of the coordinator.

        Raises:
            Exception: Its template is none.
        """
        is_waiting = waits(job)
        held = None if is_waiting else self._held_by(job)
        if held is None and not is_waiting:
            return None
        asked, priority = self._asked(revision, template), self._priorities.of(job, template)
        autoscaled = queue_name(job) in self._autoscaled
        if held is None:
            gang = waiting_of(job, template, asked, priority, autoscaled)
            self._readings.waits(job, gang)
            return gang
        return holding_of(
            job,
            template,
            asked,
            priority,
            autoscaled,
            shape=self._readings.shared(limited(asked.shape, held)),
            record=held,
            placed=self._placed_of(job, held),
            now=self._now,
        )

    def _unreadable(self, job: TorchrunJob, why: str, error: str) -> values.Unreadable | None:
        key, queue, is_held = str(key_of(job)), queue_name(job), self._held_by(job) is not None
        return values.Unreadable(key, queue, why, error, is_held) if is_held or waits(job) else None

    def _held_by(self, job: TorchrunJob) -> Admission | None:
        """Returns the record by which the job holds its place, until the last pod is gone if it was taken back."""
        held = held_by(job)
        if held is None or holds(job, held):
            return held
        return held if held.taken_back_time is not None and self._placed_of(job, held) else None

    def _placed_of(self, job: TorchrunJob, held: Admission) -> Mapping[str, int]:
        return self._placed.get((job.metadata.uid, str(held.attempt)), {})

    def _asked(self, revision: Key, template: Template) -> Asked:
        return self._readings.template(revision, template, self._defaults.of(revision.namespace))


def _placed(nodes: Iterable[OnNode]) -> dict[tuple[str, str], dict[str, int]]:
    """Returns how many workers are on which node, by the uid of their job and the attempt."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for on in nodes:
        for gang, count in on.workers:
            found.setdefault(gang, {})[on.name] = count
    return found


class _Defaults:
    """What the pods of each namespace get at admission."""

    def __init__(self, observed: Observed, priority_class: str) -> None:
        self._none = PodDefaults((), observed.runtimes, priority_class)
        self._by_namespace: dict[str, PodDefaults] = {}
        for given in observed.limit_ranges:
            namespace = given.metadata.namespace
            before = self._by_namespace.get(namespace, self._none)
            self._by_namespace[namespace] = before._replace(limit_ranges=(*before.limit_ranges, given))

    def of(self, namespace: str) -> PodDefaults:
        return self._by_namespace.get(namespace, self._none)
