"""Kueue as a person plays it: what its manager writes of a Job that it takes up, admits and evicts, and no more."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from waiting import until

from torchctl.api.kube import JOB, Job
from torchctl.api.kueue import KUEUE_WORKLOAD
from torchctl.api.labels import KUEUE_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import AlreadyExists
from torchctl.runtime.conditions import is_true

__all__ = ["SEEN_S", "admit", "condition", "evict", "has_ended", "is_active", "take_up"]

Json = dict[str, Any]

SEEN_S = 90.0
"""How long something may take to be there that another one makes."""
LINUX = {"kubernetes.io/os": "linux"}
"""The node labels of the flavor that it gives."""


async def take_up(admin: Client, job: Job) -> None:
    """Makes the Job's Workload, if there is none."""
    meta = job.metadata
    owner = {"apiVersion": JOB.api_version, "kind": JOB.kind, "name": meta.name, "uid": meta.uid, "controller": True}
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "trainer:1"}]}
    sets = [{"name": "main", "count": int(job.spec["completions"]), "template": {"spec": pod}}]
    spec = {"active": True, "queueName": meta.labels[KUEUE_QUEUE], "podSets": sets}
    with suppress(AlreadyExists):
        await admin.create(KUEUE_WORKLOAD, _workload(job, ownerReferences=[owner]) | {"spec": spec})


async def is_active(admin: Client, job: Job) -> bool:
    """Whether nobody has paused the Job's Workload."""
    return (await admin.get(KUEUE_WORKLOAD, _name(job), job.metadata.namespace)).spec.active


def has_ended(job: Job) -> bool:
    """Whether the Job's controller has ended it. One that only gives up stays in Kueue's queue."""
    return any(is_true(job.status.conditions, type_) for type_ in ("Complete", "Failed"))


async def admit(admin: Client, job: Job) -> None:
    """Gives quota, and releases the Job onto the flavor's nodes once its controller has seen it suspended.

    Earlier, it would be a matter of time which conditions the Job has.
    """
    await until(lambda: _is_suspended(admin, job), timeout_s=SEEN_S)
    quota = condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue all")
    await _tell(admin, job, quota, condition("Admitted", "True", "Admitted", "The workload is admitted"))
    await _steer(admin, job, suspend=False, selector=LINUX)


async def evict(admin: Client, job: Job, reason: str, message: str) -> None:
    """Suspends the Job, takes the flavor out of its template once its controller knows, and queues it again."""
    evicted = condition("Evicted", "True", reason, message)
    await _tell(admin, job, evicted, condition("Admitted", "True", "Admitted", "The workload is admitted"))
    await _steer(admin, job, suspend=True, selector=LINUX)
    await until(lambda: _is_suspended(admin, job), timeout_s=SEEN_S)
    cleared, namespace = {"status": {"startTime": None}}, job.metadata.namespace
    await admin.merge_patch(JOB, job.metadata.name, cleared, namespace=namespace, subresource="status")
    await _steer(admin, job, suspend=True, selector={})
    short = condition("QuotaReserved", "False", "WaitingForQuota", "8 more needed")
    await _tell(admin, job, evicted, short, condition("Admitted", "False", "NoReservation", "No reservation"))


def condition(type_: str, status: str, reason: str, message: str) -> Json:
    """A condition of now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}


async def _is_suspended(admin: Client, job: Job) -> bool:
    """Whether its controller knows that the Job is suspended; one that has ended meanwhile is never."""
    live = await admin.get(JOB, job.metadata.name, job.metadata.namespace)
    return live.status.ends() or is_true(live.status.conditions, "Suspended")


async def _steer(admin: Client, job: Job, *, suspend: bool, selector: dict[str, str]) -> None:
    """Writes what is Kueue's in a Job; by server-side apply, so that a selector that is left out goes."""
    meta = {"name": job.metadata.name, "namespace": job.metadata.namespace, "uid": job.metadata.uid}
    template = {"template": {"spec": {"nodeSelector": selector}}} if selector else {}
    body = {"apiVersion": JOB.api_version, "kind": JOB.kind, "metadata": meta, "spec": {"suspend": suspend} | template}
    await admin.apply(JOB, body, force=True, field_manager="kueue")


async def _tell(admin: Client, job: Job, *conditions: Json) -> None:
    body = _workload(job) | {"status": {"conditions": [*conditions]}}
    await admin.apply(KUEUE_WORKLOAD, body, subresource="status", force=True, field_manager="kueue")


def _workload(job: Job, **metadata: Any) -> Json:
    meta = {"name": _name(job), "namespace": job.metadata.namespace} | metadata
    return {"apiVersion": KUEUE_WORKLOAD.api_version, "kind": KUEUE_WORKLOAD.kind, "metadata": meta}


def _name(job: Job) -> str:
    return f"job-{job.metadata.name}"
