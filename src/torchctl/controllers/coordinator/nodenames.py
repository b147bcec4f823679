"""Names the nodes to which a gang is limited, because its record and its pods carry these names."""

from collections.abc import Iterable
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
    held, able = capacity.held, capacity.free(gang.shape).keys()
    own = {name for name, key in held.items() if key == gang.key}
    if own:
        return _few(NodeNames(only=_sorted(own)), NodeNames(avoid=_sorted(able - own)))
    avoid = NodeNames(avoid=_sorted(held if len(held) <= MOST_NODES else held.keys() & able))
    if gang.autoscaled:
        return _few(avoid)  # the nodes that come for it have no names yet
    return _few(avoid, NodeNames(only=_sorted(capacity.free(limited))))


def _few(*choices: NodeNames) -> NodeNames | None:
    """Returns the first one that a record can carry."""
    return next((names for names in choices if len(names.only) + len(names.avoid) <= MOST_NODES), None)


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
