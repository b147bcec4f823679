"""The PodGroups of all gang schedulers: their kinds, and which pods are in them."""

from collections.abc import Iterable
from typing import Any

from torchctl.api import labels
from torchctl.api.kube import KAI_PODGROUP, KaiPodGroup, Pod
from torchctl.api.volcano import VOLCANO_PODGROUP, VolcanoPodGroup
from torchctl.runtime.kinds import Kind

__all__ = ["GROUP_KINDS", "PodGroup", "groups_of", "holds_queue", "kind_of", "least_of"]

PodGroup = KaiPodGroup | VolcanoPodGroup

GROUP_KINDS: tuple[Kind[Any], ...] = (KAI_PODGROUP, VOLCANO_PODGROUP)
"""The kinds of PodGroups. A cluster serves those of the schedulers that it has."""

_BY_TYPE = {kind.type: kind for kind in GROUP_KINDS}


def kind_of(group: PodGroup) -> Kind[Any]:
    """The kind of a PodGroup that was read."""
    return _BY_TYPE[type(group)]


def groups_of(pods: Iterable[Pod]) -> frozenset[str]:
    """Names of the PodGroups that pods say they are in; KAI's podgrouper may write that after a pod was made."""
    said = (pod.metadata.annotations for pod in pods)
    named = (one.get(labels.KAI_POD_GROUP) or one.get(labels.VOLCANO_POD_GROUP) for one in said)
    return frozenset(filter(None, named))


def least_of(group: PodGroup) -> int:
    """The minMember of a PodGroup; 1, which is no gang, if it has none, as its scheduler takes it."""
    return int(group.spec.get("minMember") or 1)


def holds_queue(group: PodGroup) -> bool:
    """Whether a PodGroup without pods is in the way: Volcano closes no Queue that a PodGroup names."""
    return isinstance(group, VolcanoPodGroup)
