"""Defines TorchrunQueue, the kind that says how jobs run."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import Field

from torchctl.api.common import Distributed, RunPolicy
from torchctl.api.extras import ExtraResource
from torchctl.api.fields import (
    LIST_OF_NAMED,
    MAX_INT32,
    UNIQUE_NAMES,
    WRITTEN_OUT,
    Amount,
    ClaimName,
    DnsName,
    Duration,
    Image,
    LabelKey,
    Labels,
    LabelValue,
    Open,
)
from torchctl.api.model import Model
from torchctl.api.names import AUTO, GPU_RESOURCE, GROUP, KAI_SCHEDULER, NATIVE, VERSION, VOLCANO
from torchctl.api.pods import Env, EnvFrom, PodTemplate, Tolerations, qualified_keys
from torchctl.api.queuestatus import (
    GpuCounts,
    JobCounts,
    KaiQueueStatus,
    QueueStatus,
    ResourceState,
    VolcanoQueueStatus,
)
from torchctl.api.quota import OFF, KaiResources, QueueQuota
from torchctl.api.rules import Rule
from torchctl.api.storage import Storage
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = [
    "TORCHRUN_QUEUE",
    "GpuCounts",
    "JobCounts",
    "KaiQueueStatus",
    "NodeResources",
    "Preemption",
    "QueueCapacity",
    "QueuePolicy",
    "QueueSpec",
    "QueueStatus",
    "ResourceState",
    "Scheduling",
    "Topology",
    "TorchrunQueue",
    "VolcanoQueueStatus",
]


class QueuePolicy(StrEnum):
    """Whose a scheduler's Queue is: the operator's, which makes it, or the administrator's."""

    MANAGE = "Manage"
    REFERENCE = "Reference"


class Preemption(StrEnum):
    """Whose jobs the coordinator stops for a job of the queue that waits: nobody's, its own, or also its cohort's.

    Its own have a lower priority. Those of its cohort are in queues that hold more than they own, and the waiting job
    stays within what its own queue owns.
    """

    NEVER = "Never"
    WITHIN_QUEUE = "WithinQueue"
    RECLAIM = "Reclaim"


class QueueCapacity(StrEnum):
    """The nodes for which the coordinator lets jobs of the queue in: those that there are, or also those to come.

    An autoscaler brings nodes for pods that wait, so such jobs are let in as soon as their quotas allow it.
    """

    EXISTING = "Existing"
    AUTOSCALED = "Autoscaled"


class NodeResources(Model):
    """The resources of one worker pod: requests and limits of `trainer`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.gpusPerNode) || self.gpus == 0",
            message="gpusPerNode is for GPUs that come from resource claims: it excludes gpus",
            holds=lambda self: self.gpus_per_node is None or self.gpus == 0,
            field="gpusPerNode",
        ),
    )

    gpus: int = Field(
        default=0, ge=0, le=1024, description="GPUs per node, as limits of gpuResourceName; 0: CPU only. Default: 0."
    )
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="GPUs that each pod gets from podTemplate.spec.resourceClaims (dynamic resource allocation). They "
        "count for processes, backend, numGPUs and sizes per GPU, and are not asked for as limits. Not with gpus. "
        "Default: none.",
    )
    cpus: Amount | None = Field(
        default=None, description="CPUs per node, as a quantity. Default: no request, no limit."
    )
    memory: Amount | None = Field(
        default=None, description="Memory per node, as a quantity: 512Gi. Default: no request, no limit."
    )
    gpu_type: Annotated[LabelValue, Field(min_length=1)] | None = Field(
        default=None,
        description="Product name of the GPU, as the vendor's labeller writes it: pods go to nodes where the label "
        "nvidia.com/gpu.product, amd.com/gpu.product-name or gpu.intel.com/product has it, by the domain of "
        "gpuResourceName, or the operator's --gpu-type-label. Default: any.",
    )
    gpu_resource_name: LabelKey = Field(
        default=GPU_RESOURCE, description="Extended resource that counts GPUs. Default: nvidia.com/gpu."
    )


class Topology(Model):
    """The closeness at which KAI places the pods of a job."""

    name: DnsName = Field(description="Name of the KAI Topology.")
    required: LabelKey | None = Field(
        default=None, description="Level (node label) that all pods must share. Default: none."
    )
    preferred: LabelKey | None = Field(
        default=None, description="Level (node label) that the pods should share. Default: none."
    )


class Scheduling(Model):
    """The scheduler of the worker pods, and the nodes that they may run on."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.?priorityClassName.orValue('').startsWith('system-')",
            message="priorityClassName must not be one of the cluster's own: system-* may evict what keeps nodes alive",
            holds=lambda self: not (self.priority_class_name or "").startswith("system-"),
            field="priorityClassName",
        ),
        Rule(
            cel="!has(self.volcanoQueue) || self.?scheduler.orValue('volcano') == 'volcano'",
            message="volcanoQueue is for the scheduler volcano",
            holds=lambda self: self.volcano_queue is None or self.scheduler in (None, VOLCANO),
            field="volcanoQueue",
        ),
        Rule(
            cel="self.?volcanoQueuePolicy.orValue('Reference') != 'Manage' "
            "|| !(self.?volcanoQueue.orValue('default') in ['default', 'root'])",
            message="volcanoQueuePolicy Manage needs volcanoQueue: the name of a Queue other than Volcano's own, "
            "default and root",
            holds=lambda self: (
                self.volcano_queue_policy is not QueuePolicy.MANAGE
                or (self.volcano_queue or "default") not in ("default", "root")
            ),
            field="volcanoQueuePolicy",
        ),
        Rule(
            cel="!has(self.kueueQueue) || !has(self.volcanoQueue)",
            message="kueueQueue and volcanoQueue each make a gang of the pods: set one of them",
            holds=lambda self: self.kueue_queue is None or self.volcano_queue is None,
            field="kueueQueue",
        ),
        Rule(
            cel="!has(self.kueueQueue) "
            "|| !(self.?scheduler.orValue('') in ['auto', 'kubernetes', 'volcano', 'kai-scheduler'])",
            message="kueueQueue does not go with a gang scheduler: leave scheduler out",
            holds=lambda self: self.kueue_queue is None or self.scheduler not in (AUTO, NATIVE, VOLCANO, KAI_SCHEDULER),
            field="kueueQueue",
        ),
        qualified_keys("node_selector"),
    )

    scheduler: DnsName | None = Field(
        default=None,
        description="Name of the scheduler: kai-scheduler, volcano or another. kubernetes is kube-scheduler with its "
        "own gangs, which are alpha and not for elastic jobs. auto takes the first of these three that the cluster has "
        "when a job starts, else the cluster's default. Default: kai-scheduler when kaiQueue is set, volcano when "
        "volcanoQueue is, else the operator's --default-scheduler.",
    )
    volcano_queue: DnsName | None = Field(
        default=None,
        description="Name of Volcano's Queue. Default: default, which Volcano makes itself.",
    )
    volcano_queue_policy: QueuePolicy = Field(
        default=QueuePolicy.REFERENCE,
        description="Reference: the Volcano Queue is the admin's, has to exist, and is never written. Manage: the "
        "operator makes and owns it, with the weight and the quota of this queue, and it goes with this one. From "
        "Manage to Reference it is handed over as it is. Default: Reference.",
    )
    kueue_queue: DnsName | None = Field(
        default=None,
        description="Name of the LocalQueue of Kueue, in this namespace, that admits the jobs: each waits until there "
        "is quota for all its pods. It is the admin's and never written. Default: none.",
    )
    node_selector: Labels | None = Field(default=None, description="Node labels that worker pods need. Default: none.")
    affinity: Open | None = Field(default=None, description="Affinity of worker pods, as in a pod. Default: none.")
    tolerations: Tolerations = Field(default=(), description="Taints that worker pods tolerate. Default: none.")
    priority_class_name: ClaimName | None = Field(
        default=None, description="PriorityClass of worker pods. Default: the cluster's."
    )
    gang: bool = Field(
        default=True, description="Whether all pods of a job start together or not at all. Default: true."
    )
    topology: Topology | None = Field(default=None, description="Placement by network topology (KAI). Default: none.")


class QueueSpec(Model):
    """The settings of the jobs of this queue."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.kaiQueue) || !has(self.parentKaiQueue) || self.kaiQueue != self.parentKaiQueue",
            message="parentKaiQueue must differ from kaiQueue",
            holds=lambda self: self.kai_queue is None or self.kai_queue != self.parent_kai_queue,
            field="parentKaiQueue",
        ),
        Rule(
            cel="self.kaiQueuePolicy != 'Reference' || has(self.kaiQueue)",
            message="kaiQueuePolicy Reference needs kaiQueue: the name of the admin's queue",
            holds=lambda self: self.kai_queue_policy is not QueuePolicy.REFERENCE or self.kai_queue is not None,
            field="kaiQueuePolicy",
        ),
        Rule(
            cel="!has(self.kaiQueue) "
            "|| !(self.?scheduling.?scheduler.orValue('') in ['auto', 'kubernetes', 'volcano'])",
            message="kaiQueue names its scheduler, KAI: leave scheduling.scheduler out",
            holds=lambda self: self.kai_queue is None or self.scheduling.scheduler not in (AUTO, NATIVE, VOLCANO),
            field="scheduling",
        ),
        Rule(
            cel="!has(self.kaiQueue) || !has(self.scheduling) || !has(self.scheduling.volcanoQueue)",
            message="kaiQueue and scheduling.volcanoQueue are queues of different schedulers: set one of them",
            holds=lambda self: self.kai_queue is None or self.scheduling.volcano_queue is None,
            field="scheduling",
        ),
        Rule(
            cel="!has(self.kaiQueue) || !has(self.scheduling) || !has(self.scheduling.kueueQueue)",
            message="kaiQueue and scheduling.kueueQueue each make a gang of the pods: set one of them",
            holds=lambda self: self.kai_queue is None or self.scheduling.kueue_queue is None,
            field="scheduling",
        ),
    )

    kai_queue: DnsName | None = Field(default=None, description="Name of the KAI queue. Default: no KAI queue.")
    kai_queue_policy: QueuePolicy = Field(
        default=QueuePolicy.MANAGE,
        description="Manage: the operator makes and owns the KAI queue, which goes with this one. Reference: it is the "
        "admin's and never written. From Manage to Reference the KAI queue is handed over as it is. Default: Manage.",
    )
    parent_kai_queue: DnsName | None = Field(
        default=None,
        description="Parent of the KAI queue (policy Manage); it has to exist and differ from kaiQueue. Default: none.",
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
        default=NodeResources(),
        json_schema_extra=WRITTEN_OUT,
        description="What one worker pod gets. Default: no GPU, no requests.",
    )
    pod_template: PodTemplate | None = Field(
        default=None,
        description="Pod template under the other fields, which win; its first container is `trainer`. In a "
        "securityContext, null takes a default of the operator's away, such as runAsUser. Default: made.",
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
            json_schema_extra=LIST_OF_NAMED,
        ),
        UNIQUE_NAMES,
    ] = Field(default=(), description="ConfigMaps and claims that the operator keeps for this queue. Default: none.")
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1,
        description="Share of the starts that this queue gets where the coordinator orders the jobs, relative to the "
        "other queues; also the weight of a Volcano Queue that the operator makes. Anything but 1 is refused where "
        "neither is so. Default: 1.",
    )
    max_nodes: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description=f"Nodes that one job may ask for. {OFF} Default: no bound."
    )
    quota: QueueQuota = Field(
        default=QueueQuota(),
        description="What all jobs of the queue may hold together; in a cohort, what it owns. Of a Volcano Queue that "
        f"the operator makes gpus, cpus and memory are the capability. Otherwise: {OFF} Default: no bounds.",
    )
    cohort: DnsName | None = Field(
        default=None,
        description="Name of the cohort: queues of one cohort lend each other what they do not use of their quotas, "
        f"whatever their namespaces. {OFF} Default: none.",
    )
    borrowing_limit: QueueQuota = Field(
        default=QueueQuota(),
        description=f"What the queue may hold above its quota, in a cohort. {OFF} Default: all that the others do not "
        "use.",
    )
    preemption: Preemption = Field(
        default=Preemption.NEVER,
        description="Which jobs the coordinator stops for a job of this queue that waits: Never (none), WithinQueue "
        "(those of this queue with a lower priority), Reclaim (those too, and those by which queues of the cohort hold "
        "more than they own, as long as this queue stays within what it owns). Anything but Never is refused while the "
        "coordinator is off. Default: Never.",
    )
    capacity: QueueCapacity = Field(
        default=QueueCapacity.EXISTING,
        description="Nodes for which the coordinator lets jobs of this queue in. Existing: those that are there, once "
        "they have room for all pods of a job. Autoscaled: also those that a cluster autoscaler brings for pods that "
        "wait, so that quotas alone decide. Autoscaled is refused while the coordinator is off. Default: Existing.",
    )


class TorchrunQueue(msgspec.Struct, frozen=True, rename="camel"):
    """Settings that jobs share: image, resources, storage and scheduling."""

    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


def _decode(type_: type, value: Any) -> Any:
    if type_ is QueueSpec:
        return QueueSpec.model_validate(value)
    raise NotImplementedError(type_)


TORCHRUN_QUEUE = Kind(GROUP, VERSION, "TorchrunQueue", "torchrunqueues", TorchrunQueue, dec_hook=_decode)
