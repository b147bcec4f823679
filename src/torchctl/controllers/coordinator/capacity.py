"""How many pods of a shape the nodes take, now and empty. Nodes that look alike to every shape are one class."""

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from operator import attrgetter
from typing import NamedTuple

from torchctl.controllers.coordinator.matching import HELD, NODE_NAME, label_keys, matches
from torchctl.controllers.coordinator.values import Holding, Node, Shape, Taint

__all__ = ["PODS", "Capacity", "slots_in"]

PODS = "pods"
"""The resource of which every pod takes one."""


class Profile(NamedTuple):
    """The labels and taints that decide whether pods may run on a node, and the gang that it is kept for."""

    labels: tuple[str | None, ...]
    taints: tuple[Taint, ...]
    held: str


class Row(NamedTuple):
    """A node as shapes see it: what is free, and what there is if nothing runs."""

    profile: Profile
    free: tuple[int, ...]
    whole: tuple[int, ...]


class Capacity:
    """The room on the nodes for pods of given shapes. It does not change; `load` in room.py counts what comes.

    Args:
        nodes: The nodes.
        shapes: Every shape that will be asked for, but for requirements on whom nodes are kept for.

    Attributes:
        held: The gangs that nodes are kept for, by the names of the nodes.
    """

    def __init__(self, nodes: Iterable[Node], shapes: Iterable[Shape]) -> None:
        self.nodes = tuple(nodes)
        self.held: Mapping[str, str] = {}
        wanted = set(shapes)
        self._keys = label_keys(wanted)
        self._resources = tuple(sorted({name for shape in wanted for name, _ in shape.requests} | {PODS}))
        self._rows = {node.name: self._row(node) for node in self.nodes}
        self._classes = Counter(self._rows.values())
        self._empty = self._alike()
        self._matched: dict[Shape, frozenset[Profile]] = {}
        self._slots: dict[Shape, int] = {}
        self._most: dict[Shape, int] = {}

    def keeping(self, names: Iterable[str], gang: str) -> "Capacity":
        """Returns the same with these nodes kept for a gang that none was kept for."""
        kept = copy(self)
        kept.held = {**self.held, **dict.fromkeys(names, gang)}
        kept._rows, kept._classes = dict(self._rows), Counter(self._classes)
        for name in names:
            row = self._rows[name]
            kept._rows[name] = row._replace(profile=row.profile._replace(held=gang))
            kept._classes[row] -= 1
            kept._classes[kept._rows[name]] += 1
        kept._empty = kept._alike()
        # What is counted stays right, because no shape that was counted names this gang.
        kept._matched = {}
        return kept

    def slots(self, shape: Shape) -> int:
        """Returns how many pods of this shape alone find a place now, one after the other, wherever each goes."""
        found = self._slots.get(shape)
        if found is None:
            found = self._slots[shape] = self._count(shape, free=True)
        return found

    def most(self, shape: Shape) -> int:
        """Returns how many pods of this shape the nodes take if nothing else is on them."""
        found = self._most.get(shape)
        if found is None:
            found = self._most[shape] = self._count(shape, free=False)
        return found

    def share_nodes(self, one: Shape, other: Shape) -> bool:
        """Whether there are nodes on which pods of both shapes may run."""
        return not self._matching(one).isdisjoint(self._matching(other))

    def runs_on(self, shape: Shape, names: Iterable[str]) -> bool:
        """Whether pods of this shape might run on one of these nodes."""
        profiles = self._matching(shape)
        return any(self._rows[name].profile in profiles for name in names)

    def lost_to(self, holding: Holding) -> int:
        """Returns how many places that `slots` counts the gang cannot use: its own pods on these nodes exclude more."""
        if not holding.shape.one_per_node:
            return 0
        profiles, needs = self._matching(holding.shape), self._needs(holding.shape)
        rows = (self._rows[name] for name, _ in holding.placed if name in self._rows)
        return sum(row.profile in profiles and _slots(row.free, needs) > 0 for row in rows)

    def kinds(self, shape: Shape) -> tuple[Node, ...]:
        """Returns one node, the last by name, of each kind on which pods of this shape may run if they are empty."""
        profiles = self._matching(shape)
        return tuple(
            max(nodes, key=attrgetter("name")) for (profile, _), nodes in self._empty.items() if profile in profiles
        )

    def matching(self, shape: Shape) -> tuple[Node, ...]:
        """Returns the nodes on which pods of this shape may run."""
        profiles = self._matching(shape)
        return tuple(node for node in self.nodes if self._rows[node.name].profile in profiles)

    def _count(self, shape: Shape, *, free: bool) -> int:
        profiles, needs = self._matching(shape), self._needs(shape)
        if free:
            classes = ((row.profile, row.free, count) for row, count in self._classes.items())
        else:
            classes = ((profile, whole, len(nodes)) for (profile, whole), nodes in self._empty.items())
        total = 0
        for profile, amounts, nodes in classes:
            if profile in profiles:
                slots = _slots(amounts, needs)
                total += nodes * (min(slots, 1) if shape.one_per_node else slots) if slots > 0 else 0
        return total

    def _alike(self) -> dict[tuple[Profile, tuple[int, ...]], list[Node]]:
        """Returns the nodes by what shapes see of them if nothing runs: few kinds, however full each node is."""
        found: dict[tuple[Profile, tuple[int, ...]], list[Node]] = {}
        for node in self.nodes:
            row = self._rows[node.name]
            found.setdefault((row.profile, row.whole), []).append(node)
        return found

    def _needs(self, shape: Shape) -> list[tuple[int, int]]:
        """Returns what one pod takes, by the place of the resource in a row."""
        return [(self._resources.index(name), amount) for name, amount in needs_of(shape) if amount]

    def _matching(self, shape: Shape) -> frozenset[Profile]:
        found = self._matched.get(shape)
        if found is None:
            found = frozenset(
                profile
                for profile in {profile for profile, _ in self._empty}
                if matches(shape, _present(self._keys, profile), profile.taints)
            )
            self._matched[shape] = found
        return found

    def _row(self, node: Node) -> Row:
        labels, there, used = node.labels.get, node.allocatable.get, node.used.get
        values = tuple(node.name if key == NODE_NAME else labels(key) for key in self._keys)
        whole = tuple(there(name, 0) for name in self._resources)
        free = tuple(amount - used(name, 0) for name, amount in zip(self._resources, whole, strict=True))
        return Row(Profile(values, node.taints, ""), free, whole)


def needs_of(shape: Shape) -> tuple[tuple[str, int], ...]:
    """Returns what one pod takes of a node, its place among the node's pods too."""
    return (*shape.requests, (PODS, 1))


def slots_in(shape: Shape, free: Mapping[str, int]) -> int:
    """Returns how many pods of this shape fit into these amounts."""
    slots = max(0, min(free.get(name, 0) // amount for name, amount in needs_of(shape) if amount))
    return min(slots, 1) if shape.one_per_node else slots


def _slots(amounts: tuple[int, ...], needs: list[tuple[int, int]]) -> int:
    return min(amounts[at] // amount for at, amount in needs)


def _present(keys: tuple[str, ...], profile: Profile) -> dict[str, str]:
    found = {key: value for key, value in zip(keys, profile.labels, strict=True) if value is not None}
    return {**found, HELD: profile.held} if profile.held else found
