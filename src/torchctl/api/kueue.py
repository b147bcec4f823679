"""Kueue's Workload (kueue.x-k8s.io/v1beta2), with only the fields that the operator reads."""

from datetime import datetime

import msgspec

from torchctl.api.casing import camel
from torchctl.runtime.kinds import Condition, Kind, ObjectMeta

__all__ = ["KUEUE_WORKLOAD", "KueueRequeueState", "KueueWorkload", "KueueWorkloadSpec", "KueueWorkloadStatus"]


class KueueWorkloadSpec(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """`active` is false while somebody has paused the Workload, or Kueue has given it up."""

    active: bool = True


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
