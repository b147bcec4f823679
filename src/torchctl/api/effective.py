"""The settings of a job, merged from the job, its queue and the defaults."""

from dataclasses import dataclass
from typing import TypeVar

from torchctl.api.common import Backend, Distributed, PodRetention, RdzvBackend, RestartPolicy, RunPolicy
from torchctl.api.fields import Model
from torchctl.api.job import JobSpec, JobWorkspace
from torchctl.api.names import MASTER_PORT
from torchctl.api.queue import QueueSpec
from torchctl.api.storage import Checkpoints, QueueWorkspace

__all__ = [
    "DEFAULT_CLAIM_SIZE",
    "EffectiveDistributed",
    "EffectiveRunPolicy",
    "checkpoints",
    "distributed",
    "over",
    "queue_workspace",
    "run_policy",
    "workspace",
]

DEFAULT_CLAIM_SIZE = "10Gi"

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class EffectiveDistributed:
    """`Distributed` with every default filled in; an endpoint of None is computed by the renderer."""

    backend: Backend
    rdzv_backend: RdzvBackend
    rdzv_endpoint: str | None
    rdzv_conf: dict[str, str]
    port: int


@dataclass(frozen=True, slots=True)
class EffectiveRunPolicy:
    """`RunPolicy` with every default filled in; None is "none"."""

    max_restarts: int
    max_infrastructure_restarts: int | None
    max_worker_restarts: int
    restart_policy: RestartPolicy
    ttl_seconds_after_finished: int | None
    active_deadline_seconds: int | None
    startup_timeout_seconds: int | None
    pod_retention: PodRetention


def over(base: M, top: Model) -> M:
    """Returns `base` with those fields of `top` that were set and are not None."""
    said = {name: getattr(top, name) for name in top.model_fields_set}
    return base.model_copy(update={name: value for name, value in said.items() if value is not None})


def distributed(queue: QueueSpec, job: JobSpec, *, gpus: int) -> EffectiveDistributed:
    """Merges the distributed settings: the job's win over the queue's, and those over the defaults.

    The queue's endpoint and conf belong to the queue's rendezvous backend. They are dropped if the job names another.
    """
    base = queue.distributed
    asked = job.distributed.rdzv_backend
    if asked not in (None, base.rdzv_backend or RdzvBackend.C10D):
        base = base.model_copy(update={"rdzv_endpoint": None, "rdzv_conf": None})
    said: Distributed = over(base, job.distributed)
    return EffectiveDistributed(
        backend=said.backend or (Backend.NCCL if gpus else Backend.GLOO),
        rdzv_backend=said.rdzv_backend or RdzvBackend.C10D,
        rdzv_endpoint=said.rdzv_endpoint,
        rdzv_conf=(base.rdzv_conf or {}) | (job.distributed.rdzv_conf or {}),
        port=said.port or MASTER_PORT,
    )


def run_policy(queue: QueueSpec, job: JobSpec) -> EffectiveRunPolicy:
    """Merges the run policy: the job's wins over the queue's, and that over the defaults."""
    said: RunPolicy = over(queue.run_policy, job.run_policy)
    in_place = 100 if job.elastic else 0
    return EffectiveRunPolicy(
        max_restarts=3 if said.max_restarts is None else said.max_restarts,
        max_infrastructure_restarts=said.max_infrastructure_restarts,
        max_worker_restarts=in_place if said.max_worker_restarts is None else said.max_worker_restarts,
        restart_policy=said.restart_policy or RestartPolicy.ON_FAILURE,
        ttl_seconds_after_finished=said.ttl_seconds_after_finished,
        active_deadline_seconds=said.active_deadline_seconds,
        startup_timeout_seconds=said.startup_timeout_seconds,
        pod_retention=said.pod_retention or PodRetention.FAILED,
    )


def queue_workspace(queue: QueueSpec) -> QueueWorkspace:
    """Returns how the queue makes workspaces, with defaults if the queue says nothing."""
    return queue.storage.workspace or QueueWorkspace()


def workspace(queue: QueueSpec, job: JobSpec) -> JobWorkspace | None:
    """Returns the workspace of the job, or None.

    A job that sets any field of it has one. So does a job that sets none if the queue's is enabled. The revision
    does not count, because it may be set after the job was created.
    """
    asked = job.volumes.workspace or JobWorkspace()
    said = asked.enabled if asked.enabled is not None else bool(asked.model_fields_set - {"revision", "enabled"})
    wanted = said or (asked.enabled is None and queue_workspace(queue).enabled)
    return asked if wanted else None


def checkpoints(queue: QueueSpec, job: JobSpec) -> Checkpoints | None:
    """Returns the checkpoints volume of the job, or None. Either the job or the queue alone gives its claim."""
    base = queue.storage.checkpoints or Checkpoints()
    asked = job.volumes.checkpoints
    if asked is None or not asked.model_fields_set:
        return base if base.enabled else None
    if asked.enabled is False:
        return None
    if asked.claim_name or asked.size or asked.size_per_gpu:
        base = base.model_copy(update={"claim_name": None, "size": None, "size_per_gpu": None})
    return over(base, asked).model_copy(update={"enabled": True})
