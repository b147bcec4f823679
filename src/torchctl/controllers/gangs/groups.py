"""The PodGroups of all gang schedulers: their kinds, and which pods are in them."""

from collections.abc import Iterable
from typing import Any

from torchctl.api import labels
from torchctl.api.kube import KAI_PODGROUP, KaiPodGroup, Pod
from torchctl.runtime.kinds import Kind

__all__ = ["GROUP_KINDS", "PodGroup", "groups_of", "kind_of", "least_of"]

PodGroup = KaiPodGroup

GROUP_KINDS: tuple[Kind[Any], ...] = (KAI_PODGROUP,)
"""The kinds of PodGroups. A cluster serves those of the schedulers that it has."""

_BY_TYPE = {kind.type: kind for kind in GROUP_KINDS}


def kind_of(group: PodGroup) -> Kind[Any]:
    """The kind of a PodGroup that was read."""
    return _BY_TYPE[type(group)]


def groups_of(pods: Iterable[Pod]) -> frozenset[str]:
    """Names of the PodGroups that pods say they are in; KAI's podgrouper may write that after a pod was made."""
    return frozenset(name for pod in pods if (name := pod.metadata.annotations.get(labels.KAI_POD_GROUP)))


def least_of(group: PodGroup) -> int:
    """The minMember of a PodGroup; 1, which is no gang, if it has none, as its scheduler takes it."""
    return int(group.spec.get("minMember") or 1)
