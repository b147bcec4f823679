"""Chooses the gang scheduler of a job whose queue leaves it to the operator: the first that the cluster has.

The order is that of what they can do: KAI and Volcano have queues and elastic gangs, Kubernetes' own are alpha. A
scheduler counts as there if its PodGroups are served; whether its program runs nobody can tell from outside.
"""

from collections.abc import Container
from typing import Any

from torchctl.api.kube import KAI_PODGROUP
from torchctl.api.names import KAI_SCHEDULER, NATIVE, VOLCANO
from torchctl.api.nativegangs import NATIVE_PODGROUP
from torchctl.api.volcano import VOLCANO_PODGROUP
from torchctl.runtime.kinds import Kind

__all__ = ["ORDER", "choose"]

ORDER: tuple[tuple[str, Kind[Any]], ...] = (
    (KAI_SCHEDULER, KAI_PODGROUP),
    (VOLCANO, VOLCANO_PODGROUP),
    (NATIVE, NATIVE_PODGROUP),
)
"""Schedulers in the order in which they are taken, each with the kind by which it is known to be there."""


def choose(absent: Container[Kind[Any]], *, elastic: bool) -> str:
    """The name of the first gang scheduler that is there and can take the job; empty if there is none.

    Args:
        absent: The kinds of PodGroups that the API server does not serve.
        elastic: Whether the gang may change its size, which those of Kubernetes itself cannot.
    """
    there = (name for name, kind in ORDER if kind not in absent)
    return next((name for name in there if not (elastic and name == NATIVE)), "")
