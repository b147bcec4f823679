"""Foreign kinds that the operator reads, with only the fields that it uses.

Lists and maps that Go marshals as null if they are empty may be None. Structs of pods are not tracked by the garbage
collector (`gc=False`), because there are tens of thousands of them and decoded JSON has no cycles.
"""

from datetime import datetime
from typing import Any, TypedDict

import msgspec

from torchctl.api.casing import camel
from torchctl.runtime.conditions import is_true
from torchctl.runtime.kinds import Condition, Kind, ObjectMeta

__all__ = [
    "CONFIG_MAP",
    "CONTROLLER_REVISION",
    "JOB",
    "KAI_PODGROUP",
    "KAI_QUEUE",
    "POD",
    "PVC",
    "SERVICE",
    "ConfigMap",
    "ContainerState",
    "ContainerStatus",
    "ControllerRevision",
    "Job",
    "JobStatus",
    "KaiPodGroup",
    "KaiPodGroupStatus",
    "KaiQueue",
    "KaiQueueStatus",
    "PersistentVolumeClaim",
    "Pod",
    "PodCondition",
    "PodSpec",
    "PodStatus",
    "Running",
    "SchedulingCondition",
    "SchedulingGate",
    "SchedulingGroup",
    "SchedulingReason",
    "Service",
    "Terminated",
    "Waiting",
]


class Waiting(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    reason: str = ""
    message: str = ""


class Running(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    started_at: datetime | None = None


class Terminated(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    """The end of a container. `message` is its termination message."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    """At most one of the three is set."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class SchedulingGroup(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    pod_group_name: str = ""


class SchedulingGate(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    """Keeps a pod from every scheduler until the controller that put it on takes it off. Its name has a domain."""

    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    node_name: str = ""
    scheduler_name: str = ""
    active_deadline_seconds: int | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    scheduling_group: SchedulingGroup | None = None
    """Alpha: the API server drops it without an error while Kubernetes' own gangs are switched off."""


class PodCondition(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    """A condition without its times: so the conditions of thousands of pods are one tuple."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = ""
    start_time: datetime | None = None
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(msgspec.Struct, frozen=True, gc=False, rename=camel):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class JobStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """Status of a batch/v1 Job."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None

    @property
    def completed(self) -> frozenset[int]:
        """The indexes of `completed_indexes`, which the Job controller writes as "1,3-5,7"."""
        ranges = [part.partition("-") for part in self.completed_indexes.split(",") if part]
        return frozenset(index for first, _, last in ranges for index in range(int(first), int(last or first) + 1))

    def ends(self, *, succeeding: bool = True) -> bool:
        """Whether the Job controller has ended the Job, or is about to.

        Args:
            succeeding: Whether a Job counts that has met its success policy, and whose other pods are to be stopped.
        """
        met = ("SuccessCriteriaMet",) if succeeding else ()
        return any(is_true(self.conditions, type_) for type_ in ("Complete", "Failed", "FailureTarget", *met))


class TrainerCommand(TypedDict, total=False):
    command: list[str]


class JobPodSpec(TypedDict):
    containers: list[TrainerCommand]


class JobTemplate(TypedDict):
    spec: JobPodSpec


class JobSpec(TypedDict, total=False):
    """Spec of a batch/v1 Job, in its JSON form."""

    suspend: bool
    completions: int
    activeDeadlineSeconds: int
    template: JobTemplate


class Job(msgspec.Struct, frozen=True, rename=camel):
    """A batch/v1 Job."""

    metadata: ObjectMeta
    spec: JobSpec = {}
    status: JobStatus = JobStatus()


class ClaimStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    phase: str = ""
    access_modes: tuple[str, ...] | None = None
    capacity: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class PersistentVolumeClaim(msgspec.Struct, frozen=True, rename=camel):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: ClaimStatus = ClaimStatus()


class ConfigMap(msgspec.Struct, frozen=True, rename=camel):
    """A ConfigMap with everything that is in it: only those that the operator made are cached."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    immutable: bool | None = None


class ServiceSpec(msgspec.Struct, frozen=True, rename=camel):
    selector: dict[str, str] = {}


class Service(msgspec.Struct, frozen=True, rename=camel):
    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()

    @property
    def selector(self) -> dict[str, str]:
        """The labels of the pods that it selects."""
        return self.spec.selector


class ControllerRevision(msgspec.Struct, frozen=True, rename=camel):
    """An immutable snapshot; `data` is what was frozen."""

    metadata: ObjectMeta
    data: dict[str, Any] = {}
    revision: int = 0


class KaiQueueStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """Amounts are Kubernetes quantities, which a custom resource may also write as numbers."""

    allocated: dict[str, str | int | float] | None = None
    requested: dict[str, str | int | float] | None = None
    child_queues: tuple[str, ...] | None = None


class KaiQueue(msgspec.Struct, frozen=True, rename=camel):
    """KAI's scheduling.run.ai/v2 Queue, cluster-scoped."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: KaiQueueStatus | None = None


class SchedulingReason(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    reason: str = ""
    message: str = ""


class SchedulingCondition(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The reason why KAI does not schedule a PodGroup."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    node_pool: str = ""
    reasons: tuple[SchedulingReason, ...] | None = None


class KaiPodGroupStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    phase: str = ""
    scheduling_conditions: tuple[SchedulingCondition, ...] | None = None


class KaiPodGroup(msgspec.Struct, frozen=True, rename=camel):
    """KAI's scheduling.run.ai/v2alpha2 PodGroup."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: KaiPodGroupStatus | None = None


POD = Kind("", "v1", "Pod", "pods", Pod)
JOB = Kind("batch", "v1", "Job", "jobs", Job)
PVC = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", PersistentVolumeClaim)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)
SERVICE = Kind("", "v1", "Service", "services", Service)
CONTROLLER_REVISION = Kind("apps", "v1", "ControllerRevision", "controllerrevisions", ControllerRevision)
KAI_QUEUE = Kind("scheduling.run.ai", "v2", "Queue", "queues", KaiQueue, namespaced=False)
KAI_PODGROUP = Kind("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", KaiPodGroup)
