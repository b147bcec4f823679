"""How many pods of a shape the nodes take, now and empty. Nodes that look alike to every shape are one class."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torchctl.controllers.coordinator.matching import NODE_NAME, label_keys, matches
from torchctl.controllers.coordinator.values import Node, Shape, Taint

__all__ = ["PODS", "Capacity", "slots_in"]

PODS = "pods"
"""The resource of which every pod takes one."""


class Profile(NamedTuple):
    """The labels and taints that decide whether pods may run on a node."""

    labels: tuple[str | None, ...]
    taints: tuple[Taint, ...]


class Capacity:
    """The room on the nodes for pods of given shapes. It does not change; `load` in room.py counts what comes.

    Args:
        nodes: The nodes.
        shapes: Every shape that will be asked for.
    """

    def __init__(self, nodes: Iterable[Node], shapes: Iterable[Shape]) -> None:
        self.nodes = tuple(nodes)
        wanted = set(shapes)
        self._keys = label_keys(wanted)
        self._resources = tuple(sorted({name for shape in wanted for name, _ in shape.requests} | {PODS}))
        self._profile_of = tuple(map(self._profile, self.nodes))
        free: Counter[tuple[Profile, tuple[int, ...]]] = Counter()
        whole: Counter[tuple[Profile, tuple[int, ...]]] = Counter()
        resources = self._resources
        for node, profile in zip(self.nodes, self._profile_of, strict=True):
            there, used = node.allocatable.get, node.used.get
            amounts = [there(name, 0) for name in resources]
            whole[profile, tuple(amounts)] += 1
            free[profile, tuple(amount - used(name, 0) for name, amount in zip(resources, amounts, strict=True))] += 1
        self._free, self._whole = tuple(free.items()), tuple(whole.items())
        self._profiles = tuple({profile for (profile, _), _ in self._whole})
        self._matched: dict[Shape, frozenset[Profile]] = {}
        self._slots: dict[Shape, int] = {}
        self._most: dict[Shape, int] = {}

    def slots(self, shape: Shape) -> int:
        """Returns how many pods of this shape alone find a place now, one after the other, wherever each goes."""
        found = self._slots.get(shape)
        if found is None:
            found = self._slots[shape] = self._count(shape, self._free)
        return found

    def most(self, shape: Shape) -> int:
        """Returns how many pods of this shape the nodes take if nothing else is on them."""
        found = self._most.get(shape)
        if found is None:
            found = self._most[shape] = self._count(shape, self._whole)
        return found

    def share_nodes(self, one: Shape, other: Shape) -> bool:
        """Whether there are nodes on which pods of both shapes may run."""
        return not self._matching(one).isdisjoint(self._matching(other))

    def matching(self, shape: Shape) -> tuple[Node, ...]:
        """Returns the nodes on which pods of this shape may run."""
        profiles = self._matching(shape)
        paired = zip(self.nodes, self._profile_of, strict=True)
        return tuple(node for node, profile in paired if profile in profiles)

    def _count(self, shape: Shape, classes: Iterable[tuple[tuple[Profile, tuple[int, ...]], int]]) -> int:
        profiles = self._matching(shape)
        needs = [(self._resources.index(name), amount) for name, amount in needs_of(shape) if amount]
        total = 0
        for (profile, amounts), nodes in classes:
            if profile in profiles:
                slots = min(amounts[at] // amount for at, amount in needs)
                total += nodes * (min(slots, 1) if shape.one_per_node else slots) if slots > 0 else 0
        return total

    def _matching(self, shape: Shape) -> frozenset[Profile]:
        found = self._matched.get(shape)
        if found is None:
            found = frozenset(
                profile
                for profile in self._profiles
                if matches(shape, _present(self._keys, profile.labels), profile.taints)
            )
            self._matched[shape] = found
        return found

    def _profile(self, node: Node) -> Profile:
        labels = node.labels.get
        return Profile(tuple(node.name if key == NODE_NAME else labels(key) for key in self._keys), node.taints)


def needs_of(shape: Shape) -> tuple[tuple[str, int], ...]:
    """Returns what one pod takes of a node, its place among the node's pods too."""
    return (*shape.requests, (PODS, 1))


def slots_in(shape: Shape, free: Mapping[str, int]) -> int:
    """Returns how many pods of this shape fit into these amounts."""
    slots = max(0, min(free.get(name, 0) // amount for name, amount in needs_of(shape) if amount))
    return min(slots, 1) if shape.one_per_node else slots


def _present(keys: tuple[str, ...], values: tuple[str | None, ...]) -> dict[str, str]:
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}
