"""Kueue's Workload (kueue.x-k8s.io/v1beta2) and its list of those that wait, with only the fields that are read."""

from datetime import datetime

import msgspec

from torchctl.api.casing import camel
from torchctl.runtime.kinds import Condition, Kind, ObjectMeta

__all__ = [
    "KUEUE_PENDING",
    "KUEUE_WORKLOAD",
    "PENDING",
    "KueuePendingWorkload",
    "KueuePendingWorkloads",
    "KueueRequeueState",
    "KueueWorkload",
    "KueueWorkloadSpec",
    "KueueWorkloadStatus",
]


class KueueWorkloadSpec(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """`active` is false while somebody has paused the Workload, or Kueue has given it up."""

    active: bool = True
    queue_name: str = ""


class KueueRequeueState(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """Until when Kueue leaves a Workload alone whose pods were not ready in time; forgotten when it is inactive."""

    requeue_at: datetime | None = None


class KueueWorkloadStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    conditions: tuple[Condition, ...] | None = None
    requeue_state: KueueRequeueState | None = None


class KueueWorkload(msgspec.Struct, frozen=True, rename=camel):
    """What Kueue makes of a Job that it manages. A Job whose size has changed may have several."""

    metadata: ObjectMeta
    spec: KueueWorkloadSpec = KueueWorkloadSpec()
    status: KueueWorkloadStatus = KueueWorkloadStatus()


KUEUE_WORKLOAD = Kind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads", KueueWorkload)


class KueuePendingWorkload(msgspec.Struct, frozen=True, rename=camel):
    """A Workload that waits. Places count from 0; Kueue serves those that came by any LocalQueue in one order."""

    metadata: ObjectMeta
    position_in_cluster_queue: int = 0


class KueuePendingWorkloads(msgspec.Struct, frozen=True, rename=camel):
    """The Workloads that wait in a LocalQueue, in Kueue's order, the first thousand of them."""

    metadata: ObjectMeta = ObjectMeta()
    items: tuple[KueuePendingWorkload, ...] = ()


KUEUE_PENDING = Kind(
    "visibility.kueue.x-k8s.io", "v1beta2", "PendingWorkloadsSummary", "localqueues", KueuePendingWorkloads
)
"""Served by Kueue's manager itself, by an APIService that a cluster may lack."""
PENDING = "pendingworkloads"
"""The subresource of a LocalQueue that a `KUEUE_PENDING` is read from."""
