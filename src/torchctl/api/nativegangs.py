"""Kubernetes' own PodGroup (scheduling.k8s.io/v1alpha2), with only the fields that the operator reads.

It is alpha in Kubernetes 1.36: served with `--runtime-config` and the feature gates GenericWorkload and GangScheduling.
"""

from typing import Any

import msgspec

from torchctl.api.casing import camel
from torchctl.runtime.kinds import Condition, Kind, ObjectMeta

__all__ = ["NATIVE_PODGROUP", "NativePodGroup", "NativePodGroupStatus"]


class NativePodGroupStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    conditions: tuple[Condition, ...] | None = None


class NativePodGroup(msgspec.Struct, frozen=True, rename=camel):
    """Its spec is immutable, so that a gang of it cannot change its size."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: NativePodGroupStatus | None = None


NATIVE_PODGROUP = Kind("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups", NativePodGroup)
