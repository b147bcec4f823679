"""Volcano's kinds (scheduling.volcano.sh/v1beta1), with only the fields that the operator reads."""

from datetime import datetime
from typing import Any

import msgspec

from torchctl.api.casing import camel
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = [
    "VOLCANO_PODGROUP",
    "VOLCANO_QUEUE",
    "VolcanoCondition",
    "VolcanoPodGroup",
    "VolcanoPodGroupStatus",
    "VolcanoQueue",
    "VolcanoQueueStatus",
]


class VolcanoCondition(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """A condition of a PodGroup. Volcano never turns one False: the youngest of them holds."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class VolcanoPodGroupStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """Empty while Volcano does not look at the PodGroup, because its Queue is missing."""

    phase: str = ""
    conditions: tuple[VolcanoCondition, ...] | None = None


class VolcanoPodGroup(msgspec.Struct, frozen=True, rename=camel):
    """Volcano's PodGroup. It has no status subresource, so that a write of its status is a new generation."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: VolcanoPodGroupStatus | None = None


class VolcanoQueueStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """`state` is Open, Closing, Closed or Unknown; empty until Volcano's controllers have seen the Queue."""

    state: str = ""


class VolcanoQueue(msgspec.Struct, frozen=True, rename=camel):
    """Volcano's Queue, cluster-scoped."""

    metadata: ObjectMeta
    status: VolcanoQueueStatus | None = None


VOLCANO_PODGROUP = Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", VolcanoPodGroup)
VOLCANO_QUEUE = Kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues", VolcanoQueue, namespaced=False)
