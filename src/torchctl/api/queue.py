"""TorchrunQueue: how jobs run."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from pydantic import Field

from torchctl.api.casing import camel
from torchctl.api.common import Datasets, Distributed, Distribution, RunPolicy
from torchctl.api.fields import (
    MAX_INT32,
    AccessModes,
    Amount,
    AmountOrUnlimited,
    ClaimName,
    DnsName,
    Duration,
    Image,
    LabelKey,
    LabelValue,
    Model,
    MountPath,
    Open,
    Size,
    StringMap,
)
from torchctl.api.names import GROUP, VERSION
from torchctl.api.pods import Env, EnvFrom, PodTemplate, Tolerations
from torchctl.runtime.kinds import Condition, Kind, ObjectMeta

__all__ = [
    "TORCHRUN_QUEUE",
    "Checkpoints",
    "ExtraResource",
    "GpuResources",
    "JobCounts",
    "KaiQueuePolicy",
    "KaiQueueStatus",
    "KaiResources",
    "NameMode",
    "NodeResources",
    "QueueQuota",
    "QueueSpec",
    "QueueStatus",
    "QueueWorkspace",
    "ResourceState",
    "Scheduling",
    "Storage",
    "Topology",
    "TorchrunQueue",
]


class KaiQueuePolicy(StrEnum):
    MANAGE = "Manage"
    REFERENCE = "Reference"


class NameMode(StrEnum):
    EXACT = "exact"
    PREFIX = "prefix"


_Unbounded = Annotated[float, Field(ge=-1, le=1e9)]
_Weight = Annotated[float, Field(ge=0, le=1e9)]


class GpuResources(Model):
    """GPUs of the KAI queue, in devices; parts of one are legal."""

    quota: _Unbounded = Field(default=-1, description="GPUs guaranteed to the queue; -1: no bound. Default: -1.")
    limit: _Unbounded = Field(default=-1, description="GPUs that the queue may use at most; -1: no bound. Default: -1.")
    over_quota_weight: _Weight = Field(
        default=1, description="Share of what is left over, relative to the sister queues. Default: 1."
    )


class ComputeResources(Model):
    """CPU or memory of the KAI queue; quantities are converted to KAI's units (millicores, MB)."""

    quota: AmountOrUnlimited = Field(
        default=-1, description="Quantity guaranteed to the queue; -1: no bound. Default: -1."
    )
    limit: AmountOrUnlimited = Field(
        default=-1, description="Quantity that the queue may use at most; -1: no bound. Default: -1."
    )
    over_quota_weight: _Weight = Field(
        default=1, description="Share of what is left over, relative to the sister queues. Default: 1."
    )


class KaiResources(Model):
    """What the KAI queue guarantees and allows. Always complete: a resource left out is unbounded, not zero."""

    gpu: GpuResources = Field(default=GpuResources(), description="GPUs, in devices. Default: unbounded.")
    cpu: ComputeResources = Field(
        default=ComputeResources(), description="CPUs, as a quantity: 96, 500m. Default: unbounded."
    )
    memory: ComputeResources = Field(
        default=ComputeResources(), description="Memory, as a quantity: 512Gi. Default: unbounded."
    )


class NodeResources(Model):
    """What one worker pod gets: requests and limits of `trainer`."""

    gpus: int = Field(default=0, ge=0, le=1024, description="GPUs per node; 0: CPU only. Default: 0.")
    cpus: Amount | None = Field(
        default=None, description="CPUs per node, as a quantity. Default: no request, no limit."
    )
    memory: Amount | None = Field(
        default=None, description="Memory per node, as a quantity: 512Gi. Default: no request, no limit."
    )
    gpu_type: Annotated[LabelValue, Field(min_length=1)] | None = Field(
        default=None,
        description="Product name of the GPU: pods go to nodes whose --gpu-type-label has it. Default: any.",
    )
    gpu_resource_name: LabelKey = Field(
        default="nvidia.com/gpu", description="Extended resource that counts GPUs. Default: nvidia.com/gpu."
    )


class Topology(Model):
    """Where the pods of a job may be relative to each other (KAI)."""

    name: DnsName = Field(description="Name of the KAI Topology.")
    required: LabelKey | None = Field(
        default=None, description="Level (node label) that all pods must share. Default: none."
    )
    preferred: LabelKey | None = Field(
        default=None, description="Level (node label) that the pods should share. Default: none."
    )


class Scheduling(Model):
    """Which scheduler places the worker pods, and where."""

    scheduler: DnsName | None = Field(
        default=None,
        description="Name of the scheduler: kai-scheduler, volcano or another. Default: kai-scheduler when kaiQueue is set, "
        "else the cluster's default.",
    )
    node_selector: StringMap | None = Field(
        default=None, description="Node labels that worker pods need. Default: none."
    )
    affinity: Open | None = Field(default=None, description="Affinity of worker pods, as in a pod. Default: none.")
    tolerations: Tolerations = Field(default=(), description="Taints that worker pods tolerate. Default: none.")
    priority_class_name: ClaimName | None = Field(
        default=None, description="PriorityClass of worker pods. Default: the cluster's."
    )
    gang: bool = Field(
        default=True, description="Whether all pods of a job start together or not at all. Default: true."
    )
    topology: Topology | None = Field(default=None, description="Placement by network topology (KAI). Default: none.")


class QueueWorkspace(Model):
    """The claim `<job>-workspace` that holds a job's code."""

    enabled: bool = Field(
        default=False, description="Whether a job that says nothing of a workspace has one too. Default: false."
    )
    size: Size | None = Field(
        default=None, description="Size of the claim, as a quantity. Not with sizePerGPU. Default: 10Gi."
    )
    size_per_gpu: Size | None = Field(
        default=None,
        description="Size of the claim per GPU of the whole job, at least one. Not with size. Default: none.",
    )
    storage_class: ClaimName | None = Field(
        default=None, description="StorageClass of the claim. Default: the cluster's."
    )
    access_modes: AccessModes = Field(
        default=("ReadWriteOnce",), description="Access modes of the claim. Default: [ReadWriteOnce]."
    )
    mount_path: MountPath = Field(
        default="/app", description="Where workers see the workspace: their working directory. Default: /app."
    )
    distribution: Distribution = Field(
        default=Distribution.AUTO,
        description="How the workspace reaches the workers: shared (they mount the claim), copy (an init container copies it), "
        "serve (the sync pod serves it) or auto. Default: auto.",
    )


class Checkpoints(Model):
    """The claim `<job>-checkpoints`, or a shared one."""

    enabled: bool = Field(default=False, description="Whether jobs get a checkpoints volume. Default: false.")
    size: Size | None = Field(
        default=None, description="Size of the claim, as a quantity. Not with sizePerGPU. Default: 10Gi."
    )
    size_per_gpu: Size | None = Field(
        default=None,
        description="Size of the claim per GPU of the whole job, at least one. Not with size. Default: none.",
    )
    storage_class: ClaimName | None = Field(
        default=None, description="StorageClass of the claim. Default: the cluster's."
    )
    access_modes: AccessModes = Field(
        default=("ReadWriteOnce",), description="Access modes of the claim. Default: [ReadWriteOnce]."
    )
    claim_name: ClaimName | None = Field(
        default=None,
        description="An existing claim that all jobs share. Not with size, sizePerGPU. Default: one per job.",
    )
    mount_path: MountPath = Field(
        default="/checkpoints", description="Where workers see it (TORCHRUN_CHECKPOINT_DIR). Default: /checkpoints."
    )
    retain: bool = Field(default=True, description="Whether the claim outlives the job. Default: true.")


class Storage(Model):
    """Volumes of the worker pods."""

    shm_size_per_gpu: Size | None = Field(
        default=None,
        description="Size of /dev/shm (memory) per GPU of the pod, at least one. Default: the container runtime's.",
    )
    workspace: QueueWorkspace | None = Field(default=None, description="The jobs' code. Default: no workspace.")
    datasets: Datasets = Field(default=(), description="Existing claims that every job mounts. Default: none.")
    checkpoints: Checkpoints | None = Field(default=None, description="The jobs' checkpoints. Default: none.")


class ExtraResource(Model):
    """An object that the operator keeps in the queue's namespace."""

    name: DnsName = Field(description="Name of the object, or what it begins with.")
    name_mode: NameMode = Field(
        default=NameMode.EXACT, description="exact, or prefix: a hash of the template follows. Default: exact."
    )
    template: Open = Field(
        description="A PersistentVolumeClaim or ConfigMap. Its metadata is rebuilt: name, namespace and owner are the operator's."
    )
    immutable: bool = Field(
        default=False, description="Whether the object is never changed once it exists. Default: false."
    )


class QueueQuota(Model):
    """Bounds for all jobs of the queue together."""

    gpus: Annotated[int, Field(ge=0, le=10_000_000)] | None = Field(
        default=None, description="GPUs that jobs of this queue may hold together. Default: no bound."
    )


class QueueSpec(Model):
    """How the jobs of this queue run."""

    kai_queue: DnsName | None = Field(default=None, description="Name of the KAI queue. Default: no KAI queue.")
    kai_queue_policy: KaiQueuePolicy = Field(
        default=KaiQueuePolicy.MANAGE,
        description="Manage: the operator makes and owns the KAI queue. Reference: it is the admin's and never written. "
        "Default: Manage.",
    )
    parent_kai_queue: DnsName | None = Field(
        default=None, description="Parent of the KAI queue; it has to exist and differ from kaiQueue. Default: none."
    )
    kai_resources: KaiResources = Field(
        default=KaiResources(), description="What the KAI queue guarantees and allows. Default: unbounded."
    )
    kai_priority: Annotated[int, Field(ge=0, le=MAX_INT32)] | None = Field(
        default=None, description="Priority of the KAI queue: higher ones are served first. Default: KAI's (100)."
    )
    preempt_min_runtime: Duration | None = Field(
        default=None, description="How long a job runs before KAI may preempt it: 10m, 1h30m. Default: KAI's."
    )
    reclaim_min_runtime: Duration | None = Field(
        default=None, description="How long a job runs before KAI may reclaim its GPUs: 10m, 1h30m. Default: KAI's."
    )
    image: Image | None = Field(
        default=None, description="Image of `trainer`. Default: the job's, or the one in podTemplate."
    )
    image_pull_secrets: Annotated[
        tuple[ClaimName, ...], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default=(), description="Names of Secrets of the namespace for pulling images. Default: none.")
    service_account_name: ClaimName | None = Field(
        default=None, description="ServiceAccount of the worker pods. Default: the namespace's."
    )
    node_resources: NodeResources = Field(
        default=NodeResources(), description="What one worker pod gets. Default: no GPU, no requests."
    )
    pod_template: PodTemplate | None = Field(
        default=None,
        description="Pod template under the other fields, which win; its first container is `trainer`. Default: made.",
    )
    scheduling: Scheduling = Field(
        default=Scheduling(),
        description="Which scheduler places the worker pods, and where. Default: see its fields.",
    )
    storage: Storage = Field(default=Storage(), description="Volumes of the worker pods. Default: none.")
    distributed: Distributed = Field(
        default=Distributed(),
        description="How torchrun finds its peers; the job's values win. Default: see its fields.",
    )
    env: Env = Field(
        default=(), description="Environment of `trainer`; the job's variables win by name. Default: none."
    )
    env_from: EnvFrom = Field(
        default=(), description="Secrets and ConfigMaps whose keys become variables. Default: none."
    )
    run_policy: RunPolicy = Field(
        default=RunPolicy(),
        description="Restarts, deadlines and retention; the job's values win. Default: see its fields.",
    )
    resources: Annotated[
        tuple[ExtraResource, ...],
        Field(
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(default=(), description="Further objects that the operator keeps for this queue. Default: none.")
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="Share of this queue where no gang scheduler orders the jobs. Default: 1."
    )
    max_nodes: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="Nodes that one job may ask for. Default: no bound."
    )
    quota: QueueQuota = Field(
        default=QueueQuota(), description="Bounds for all jobs of the queue together. Default: none."
    )


class KaiQueueStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The KAI Queue behind this queue, as KAI reports it."""

    name: str = ""
    uid: str = ""
    allocated: dict[str, str] = {}
    requested: dict[str, str] = {}


class JobCounts(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """Jobs of the queue by where they are."""

    pending: int = 0
    syncing: int = 0
    queued: int = 0
    running: int = 0
    suspended: int = 0
    succeeded: int = 0
    failed: int = 0


class GpuCounts(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """GPUs of the queue's unfinished jobs."""

    requested: int = 0
    running: int = 0


class ResourceState(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """One of spec.resources, as it stands."""

    kind: str = ""
    name: str = ""
    ready: bool = False
    message: str = ""


class QueueStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """What the operator saw."""

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    kai_queue: KaiQueueStatus | None = None
    jobs: JobCounts = JobCounts()
    gpus: GpuCounts = GpuCounts()
    resources: tuple[ResourceState, ...] = ()
    template_hash: str = ""


class TorchrunQueue(msgspec.Struct, frozen=True, rename="camel"):
    """How jobs run: image, resources, storage and scheduling that the jobs of this queue share."""

    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


def _decode(type_: type, value: Any) -> Any:
    if type_ is QueueSpec:
        return QueueSpec.model_validate(value)
    raise NotImplementedError(type_)


TORCHRUN_QUEUE = Kind(GROUP, VERSION, "TorchrunQueue", "torchrunqueues", TorchrunQueue, dec_hook=_decode)
