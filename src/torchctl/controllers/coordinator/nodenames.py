"""Names the nodes to which a gang is limited, because its record and its pods carry these names."""

from typing import NamedTuple

from torchctl.controllers.coordinator.capacity import Capacity
from torchctl.controllers.coordinator.values import PodShape, Waiting

__all__ = ["MOST_NODES", "NodeNames", "node_names"]

MOST_NODES = 1024
"""Names that one record has at most; a gang that would need more is let in later."""


class NodeNames(NamedTuple):
    """The nodes that a gang is limited to, or those that it avoids; neither: it may run on any."""

    only: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()


def node_names(gang: Waiting, limited: PodShape, capacity: Capacity) -> NodeNames | None:
    """Returns the nodes for a gang that is let in with a limited shape; None if they are too many to be named."""
    held = capacity.held
    own = [name for name, key in held.items() if key == gang.key]
    if own:
        return NodeNames(only=tuple(sorted(own))) if len(own) <= MOST_NODES else None
    if len(held) <= MOST_NODES:
        return NodeNames(avoid=tuple(sorted(held)))
    avoid = sorted(held.keys() & capacity.free(gang.shape).keys())
    if len(avoid) <= MOST_NODES:
        return NodeNames(avoid=tuple(avoid))
    if gang.autoscaled:
        return None  # the nodes that come for it have no names yet
    only = sorted(capacity.free(limited))
    return NodeNames(only=tuple(only)) if len(only) <= MOST_NODES else None
