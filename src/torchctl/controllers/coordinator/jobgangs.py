"""Reads the gang of a job: what its record says, and what it waits for or holds. Pure.

A job waits from the moment at which nothing but admission is left (phase Queued). One that was let in holds its place
until its attempt is over; then it waits again for its next attempt, and keeps the age that it has. One that was started
holds its place even if somebody has removed the record that let it in.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import TorchrunJob
from torchctl.api.jobstatus import Admission
from torchctl.api.phases import TERMINAL, Phase
from torchctl.controllers.coordinator import values
from torchctl.controllers.coordinator.matching import NODE_NAME
from torchctl.controllers.coordinator.readings import Asked
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Key, key_of

__all__ = [
    "admission_of",
    "held_by",
    "holding_of",
    "holds",
    "limited",
    "queue_name",
    "waiting_of",
    "waits",
    "was_let_in",
]

Template = Mapping[str, Any]


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


def was_let_in(job: TorchrunJob) -> bool:
    """Whether an attempt of the job was ever let in, by its record."""
    return job.status.admission is not None and job.status.admission.let_in_time is not None


def waits(job: TorchrunJob) -> bool:
    """Whether nothing but admission is left to wait for."""
    held = held_by(job)
    lets_in = held is not None and held.attempt == job.status.attempt
    return job.status.phase == Phase.QUEUED and not lets_in and not _is_stopped(job)


def holds(job: TorchrunJob, held: Admission) -> bool:
    """Whether the attempt that the record is about goes on."""
    return held.attempt == job.status.attempt and job.status.phase not in (*TERMINAL, Phase.SUSPENDED)


def _is_stopped(job: TorchrunJob) -> bool:
    return bool(job.spec.suspend) or job.metadata.deletion_timestamp is not None


def queue_name(job: TorchrunJob) -> str:
    """Returns namespace and name of the queue that the job names."""
    return str(Key(job.metadata.namespace, job.spec.job_queue))


def _pods(job: TorchrunJob, template: Template) -> int:
    asked = job.spec.num_nodes if template.get("elastic") and job.spec.num_nodes is not None else None
    return int(asked if asked is not None else template["nodes"])


def limited(shape: values.PodShape, record: Admission) -> values.PodShape:
    """Returns the shape with the nodes that the job was let in for."""
    if record.only_nodes:
        return shape.needing(values.Requirement(NODE_NAME, "In", record.only_nodes))
    if record.avoid_nodes:
        return shape.needing(values.Requirement(NODE_NAME, "NotIn", record.avoid_nodes))
    return shape


def waiting_of(job: TorchrunJob, template: Template, asked: Asked, priority: int, autoscaled: bool) -> values.Waiting:
    """Returns the gang of a job that waits."""
    pods, record = _pods(job, template), admission_of(job)
    created, lasts_s = job.metadata.creation_timestamp, _lasts_s(job, template)
    return values.Waiting(
        key=str(key_of(job)),
        queue=queue_name(job),
        namespace=job.metadata.namespace,
        since_s=created.timestamp() if created is not None else 0.0,
        pods=pods,
        shape=asked.shape,
        demand=asked.demand_for(pods),
        priority=priority,
        lasts_s=lasts_s,
        namespace_demand=asked.namespace_demand_for(pods),
        quota_scopes=asked.quota_scopes,
        unnamed=asked.unnamed,
        reserved=record is not None and record.reserved,
        not_before_s=_not_before_s(job.status.admission),
        autoscaled=autoscaled,
    )


def _not_before_s(record: Admission | None) -> float:
    """Returns when a job may be let in that waits: the record may be that of the attempt whose pods found no node."""
    moment = record.not_before_time if record is not None else None
    return moment.timestamp() if moment is not None else 0.0


def holding_of(
    job: TorchrunJob,
    template: Template,
    asked: Asked,
    priority: int,
    autoscaled: bool,
    *,
    shape: values.PodShape,
    record: Admission,
    placed: Mapping[str, int],
    now: datetime,
) -> values.Holding:
    """Returns what a job holds; one whose room was taken back holds it until its pods are gone.

    Args:
        shape: That of its pods, with the nodes that it was let in for.
    """
    assert record.let_in_time is not None
    pods, lasts_s, over = _pods(job, template), _lasts_s(job, template), not holds(job, record)
    there = sum(placed.values())
    unmade = 0 if over else max(0, pods - max(there, _made(job)))
    refused = unmade if _are_refused(job) else 0
    # What has begun has begun by now: a clock that was ahead would make others wait for an end that has long been.
    begun = min(job.status.attempt_active_time or record.let_in_time, now)
    leaving_for = "" if record.taken_back_time is None else record.preempted_for or values.NOBODY
    return values.Holding(
        key=str(key_of(job)),
        queue=queue_name(job),
        namespace=job.metadata.namespace,
        pods=pods,
        shape=shape,
        demand=asked.demand_for(pods),
        let_in_s=record.let_in_time.timestamp(),
        ends_s=None if lasts_s is None else begun.timestamp() + lasts_s,
        placed=tuple(sorted(placed.items())),
        done=max(0, pods - there) if over else job.status.workers.succeeded,
        has_run=over or job.status.attempt_ready_time is not None or _have_run(job) >= pods,
        leaving_for=leaving_for,
        pending_namespace_demand=asked.namespace_demand_for(unmade - refused),
        refused=refused,
        quota_scopes=asked.quota_scopes,
        priority=priority,
        autoscaled=autoscaled,
    )


def _have_run(job: TorchrunJob) -> int:
    """The pods that run or are done, by the last count: one may be done before the last of them was ready.

    Those that failed are made again in an elastic job, and end the attempt of any other.
    """
    return job.status.workers.running + job.status.workers.succeeded


def _made(job: TorchrunJob) -> int:
    """The pods that exist and count, by the last count: a ResourceQuota has taken note of them."""
    return job.status.workers.pending + _have_run(job)


def _are_refused(job: TorchrunJob) -> bool:
    """Whether a quota or a webhook refuses the pods that it lacks, as the Job controller says."""
    ready = find(job.status.conditions, JobCondition.WORKERS_READY)
    return ready is not None and ready.reason == JobReason.PODS_NOT_CREATED


def _lasts_s(job: TorchrunJob, template: Template) -> float | None:
    """Returns how long the job may still run, by its deadline."""
    own = job.spec.run_policy.active_deadline_seconds
    bound = own if own is not None else (template.get("queueRunPolicy") or {}).get("activeDeadlineSeconds")
    return None if bound is None else max(0.0, float(bound) - job.status.active_seconds)
