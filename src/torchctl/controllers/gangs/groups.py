"""The PodGroups of all gang schedulers: their kinds, and which pods are in them."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from torchctl.api import labels
from torchctl.api.kube import KAI_PODGROUP, KaiPodGroup, Pod
from torchctl.api.nativegangs import NATIVE_PODGROUP, NativePodGroup
from torchctl.api.volcano import VOLCANO_PODGROUP, VolcanoPodGroup
from torchctl.runtime.kinds import Kind

__all__ = ["GROUP_KINDS", "PodGroup", "groups_of", "holds_queue", "kind_of", "least_of"]

PodGroup = KaiPodGroup | VolcanoPodGroup | NativePodGroup

GROUP_KINDS: tuple[Kind[Any], ...] = (KAI_PODGROUP, VOLCANO_PODGROUP, NATIVE_PODGROUP)
"""The kinds of PodGroups. A cluster serves those of the schedulers that it has."""

_BY_TYPE = {kind.type: kind for kind in GROUP_KINDS}


def kind_of(group: PodGroup) -> Kind[Any]:
    """The kind of a PodGroup that was read."""
    return _BY_TYPE[type(group)]


def groups_of(pods: Iterable[Pod]) -> frozenset[str]:
    """Names of all PodGroups that pods name, of whatever scheduler; each scheduler heeds its own, see `group_of`."""
    return frozenset(filter(None, chain.from_iterable(map(_named, pods))))


def _named(pod: Pod) -> tuple[str, ...]:
    said, native = pod.metadata.annotations, pod.spec.scheduling_group
    ours = native.pod_group_name if native is not None else ""
    return ours, said.get(labels.KAI_POD_GROUP, ""), said.get(labels.VOLCANO_POD_GROUP, "")


def least_of(group: PodGroup) -> int:
    """The fewest pods that a PodGroup places; 1, which is no gang, if it does not say, as its scheduler takes it."""
    if isinstance(group, NativePodGroup):
        return int(group.spec.get("schedulingPolicy", {}).get("gang", {}).get("minCount") or 1)
    return int(group.spec.get("minMember") or 1)


def holds_queue(group: PodGroup) -> bool:
    """Whether a PodGroup without pods is in the way: Volcano closes no Queue that a PodGroup names."""
    return isinstance(group, VolcanoPodGroup)
