"""Makes the coordinator's state out of observed objects. Pure.

A job waits from the moment at which nothing but admission is left (phase Queued). One that was let in holds its place
until its attempt is over; then it waits again for its next attempt, and keeps the age that it has. One that was started
holds its place even if somebody has removed the record that let it in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from torchctl.api.job import TorchrunJob
from torchctl.api.jobstatus import Admission
from torchctl.api.phases import TERMINAL, Phase
from torchctl.api.queue import QueueCapacity
from torchctl.controllers.coordinator import values
from torchctl.controllers.coordinator.admitted import PodDefaults
from torchctl.controllers.coordinator.bounds import namespace_quota, queue_of
from torchctl.controllers.coordinator.matching import NODE_NAME
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.priorities import Priorities
from torchctl.controllers.coordinator.readings import Asked, OnNode, Readings
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.kinds import Key, key_of

__all__ = ["admission_of", "held_by", "state_of"]

Template = Mapping[str, Any]


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
            starts.append(values.Start(_queue(job), record.let_in_time.timestamp(), turn))
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

    def read(self, job: TorchrunJob) -> values.Waiting | values.Holding | values.Unreadable | None:
        """Returns the gang of a job; None if it concerns nobody."""
        revision = Key(job.metadata.namespace, job.status.queue_revision)
        template = self._templates.get(revision)
        if template is None:
            # One that waits may be seen before its template. What was let in is the coordinator's, whatever is gone.
            return self._unreadable(job, "it is gone") if _was_let_in(job) and not _waits(job) else None
        if not template.get("coordinated"):
            return None
        try:
            return self._gang(job, revision, template)
        except Exception as error:  # users write templates, and whatever is wrong with one must not stop all decisions
            return self._unreadable(job, f"{type(error).__name__}: {error}")

    def _gang(self, job: TorchrunJob, revision: Key, template: Template) -> values.Waiting | values.Holding | None:
        """Returns the gang of a job of the coordinator.

        Raises:
            Exception: Its template is none.
        """
        if _waits(job):
            asked, priority = self._asked(revision, template), self._priorities.of(job, template)
            autoscaled = _queue(job) in self._autoscaled
            make = partial(_waiting, job, template, asked, priority, autoscaled)
            return self._readings.waiting(job, (asked, priority, autoscaled), make)
        held = self._held_by(job)
        if held is None:
            return None
        asked = self._asked(revision, template)
        shape = self._readings.shared(_limited(asked.shape, held))
        holding = _holding(job, template, replace(asked, shape=shape), held, self._placed_of(job, held), self._now)
        priority = self._priorities.of(job, template)
        return replace(holding, priority=priority, autoscaled=holding.queue in self._autoscaled)

    def _unreadable(self, job: TorchrunJob, why: str) -> values.Unreadable | None:
        holds = self._held_by(job) is not None
        return values.Unreadable(str(key_of(job)), _queue(job), why, holds) if holds or _waits(job) else None

    def _held_by(self, job: TorchrunJob) -> Admission | None:
        """Returns the record by which the job holds its place, until the last pod is gone if it was taken back."""
        held = held_by(job)
        if held is None or _holds(job, held):
            return held
        return held if held.taken_back_time is not None and self._placed_of(job, held) else None

    def _placed_of(self, job: TorchrunJob, held: Admission) -> Mapping[str, int]:
        return self._placed.get((job.metadata.uid, str(held.attempt)), {})

    def _asked(self, revision: Key, template: Template) -> Asked:
        return self._readings.template(revision, template, self._defaults.of(revision.namespace))


def admission_of(job: TorchrunJob) -> Admission | None:
    """Returns the record about the job's current attempt."""
    record = job.status.admission
    return record if record is not None and record.attempt == job.status.attempt else None


def held_by(job: TorchrunJob) -> Admission | None:
    """Returns the record by which the job holds its place, or one in its stead if it was started without; else None.

    It may be about an earlier attempt whose room was taken back.
    """
    record, attempt, start = job.status.admission, job.status.attempt, job.status.attempt_start_time
    granted = record if record is not None and record.let_in_time is not None else None
    if granted is not None and granted.attempt == attempt:
        return granted
    if start is not None:
        return Admission(attempt=attempt, let_in_time=start)
    return granted if granted is not None and granted.taken_back_time is not None else None


def _was_let_in(job: TorchrunJob) -> bool:
    return job.status.admission is not None and job.status.admission.let_in_time is not None


def _waits(job: TorchrunJob) -> bool:
    held = held_by(job)
    lets_in = held is not None and held.attempt == job.status.attempt
    return job.status.phase == Phase.QUEUED and not lets_in and not _is_stopped(job)


def _holds(job: TorchrunJob, held: Admission) -> bool:
    return held.attempt == job.status.attempt and job.status.phase not in (*TERMINAL, Phase.SUSPENDED)


def _is_stopped(job: TorchrunJob) -> bool:
    return bool(job.spec.suspend) or job.metadata.deletion_timestamp is not None


def _queue(job: TorchrunJob) -> str:
    return str(Key(job.metadata.namespace, job.spec.job_queue))


def _pods(job: TorchrunJob, template: Template) -> int:
    asked = job.spec.num_nodes if template.get("elastic") and job.spec.num_nodes is not None else None
    return int(asked if asked is not None else template["nodes"])


def _limited(shape: values.PodShape, record: Admission) -> values.PodShape:
    """Returns the shape with the nodes that the job was let in for."""
    if record.only_nodes:
        return shape.needing(values.Requirement(NODE_NAME, "In", record.only_nodes))
    if record.avoid_nodes:
        return shape.needing(values.Requirement(NODE_NAME, "NotIn", record.avoid_nodes))
    return shape


def _waiting(job: TorchrunJob, template: Template, asked: Asked, priority: int, autoscaled: bool) -> values.Waiting:
    pods, record = _pods(job, template), admission_of(job)
    created, lasts_s = job.metadata.creation_timestamp, _lasts_s(job, template)
    return values.Waiting(
        key=str(key_of(job)),
        queue=_queue(job),
        namespace=job.metadata.namespace,
        since_s=created.timestamp() if created is not None else 0.0,
        pods=pods,
        shape=asked.shape,
        demand=asked.demand_for(pods),
        priority=priority,
        lasts_s=lasts_s,
        namespace_demand=asked.namespace_demand_for(pods),
        quota_scopes=asked.quota_scopes,
        reserved=record is not None and record.reserved,
        not_before_s=_not_before_s(job.status.admission),
        autoscaled=autoscaled,
    )


def _not_before_s(record: Admission | None) -> float:
    """Returns when a job may be let in that waits: the record may be that of the attempt whose pods found no node."""
    moment = record.not_before_time if record is not None else None
    return moment.timestamp() if moment is not None else 0.0


def _holding(
    job: TorchrunJob, template: Template, asked: Asked, record: Admission, placed: Mapping[str, int], now: datetime
) -> values.Holding:
    """Returns what a job holds; one whose room was taken back holds it until its pods are gone."""
    assert record.let_in_time is not None
    pods, lasts_s, over = _pods(job, template), _lasts_s(job, template), not _holds(job, record)
    there = sum(placed.values())
    # What has begun has begun by now: a clock that was ahead would make others wait for an end that has long been.
    begun = min(job.status.attempt_active_time or record.let_in_time, now)
    leaving_for = "" if record.taken_back_time is None else record.preempted_for or values.NOBODY
    return values.Holding(
        key=str(key_of(job)),
        queue=_queue(job),
        namespace=job.metadata.namespace,
        pods=pods,
        shape=asked.shape,
        demand=asked.demand_for(pods),
        let_in_s=record.let_in_time.timestamp(),
        ends_s=None if lasts_s is None else begun.timestamp() + lasts_s,
        placed=tuple(sorted(placed.items())),
        done=max(0, pods - there) if over else job.status.workers.succeeded,
        settled=over or job.status.attempt_ready_time is not None or _have_run(job) >= pods,
        leaving_for=leaving_for,
        pending_namespace_demand=asked.namespace_demand_for(0 if over else max(0, pods - max(there, _made(job)))),
        quota_scopes=asked.quota_scopes,
    )


def _have_run(job: TorchrunJob) -> int:
    """The pods that run or are done, by the last count: one may be done before the last of them was ready.

    Those that failed are made again in an elastic job, and end the attempt of any other.
    """
    return job.status.workers.running + job.status.workers.succeeded


def _made(job: TorchrunJob) -> int:
    """The pods that exist and count, by the last count: a ResourceQuota has taken note of them."""
    return job.status.workers.pending + _have_run(job)


def _lasts_s(job: TorchrunJob, template: Template) -> float | None:
    """Returns how long the job may still run, by its deadline."""
    own = job.spec.run_policy.active_deadline_seconds
    bound = own if own is not None else (template.get("queueRunPolicy") or {}).get("activeDeadlineSeconds")
    return None if bound is None else max(0.0, float(bound) - job.status.active_seconds)


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
