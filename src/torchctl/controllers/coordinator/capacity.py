"""How many pods of a shape the nodes take, now and empty. Nodes that look alike to every shape are one class."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from operator import attrgetter, sub
from typing import NamedTuple

from torchctl.controllers.coordinator.alike import Kind
from torchctl.controllers.coordinator.matching import HELD, NODE_NAME, label_keys, matches, selects, untolerated
from torchctl.controllers.coordinator.values import HOST_PORT, Holding, NodeInfo, PodShape, Taint

__all__ = ["PODS", "Capacity", "amount_of", "slots_in"]

PODS = "pods"
"""The resource of which every pod takes one."""


class Profile(NamedTuple):
    """The labels and taints that decide whether pods may run on a node, and the gangs that it was kept for."""

    labels: tuple[str | None, ...]
    taints: tuple[Taint, ...]
    held: frozenset[str]


class Row(NamedTuple):
    """A node as shapes see it: the number of its profile, what is free, and what there is if nothing runs."""

    profile: int
    free: tuple[int, ...]
    whole: tuple[int, ...]


class Amounts(NamedTuple):
    """How many nodes have which amounts: there are far fewer of them than nodes; and the most of each resource."""

    nodes: Counter[tuple[int, ...]]
    most: tuple[int, ...]


class Capacity:
    """The room on the nodes for pods of given shapes. It does not change; `load` in room.py counts what comes.

    Args:
        nodes: The nodes.
        shapes: Every shape that will be asked for, but for requirements on whom nodes are kept for.

    Attributes:
        held: The gangs that nodes are kept for, by the names of the nodes; of several, the last one.
    """

    def __init__(self, nodes: Iterable[NodeInfo], shapes: Iterable[PodShape]) -> None:
        self.nodes = tuple(nodes)
        self.held: Mapping[str, str] = {}
        wanted = set(shapes)
        self._keys = label_keys({shape.chooses: shape for shape in wanted}.values())
        self._resources = tuple(sorted({name for shape in wanted for name, _ in shape.requests} | {PODS}))
        self._place = {name: at for at, name in enumerate(self._resources)}
        self._profiles: dict[Profile, int] = {}
        self._rows = dict(self._read())
        self._classes = Counter(self._rows.values())
        self._slots: dict[PodShape, int] = {}
        self._most: dict[PodShape, int] = {}
        self._tainted: dict[Kind, tuple[tuple[NodeInfo, int], ...]] = {}
        self._forget()

    def _forget(self) -> None:
        """Drops what follows from the profiles of the nodes."""
        there = {row.profile for row, nodes in self._classes.items() if nodes}
        self._present = {number: profile for profile, number in self._profiles.items() if number in there}
        self._chosen: dict[Kind, frozenset[int]] = {}
        self._amounts: dict[tuple[frozenset[int], bool], Amounts] = {}
        self._free: dict[Kind, Amounts] = {}
        self._whole: dict[Kind, Amounts] = {}
        self._kinds: dict[frozenset[int], tuple[NodeInfo, ...]] = {}

    def keeping(self, names: Iterable[str], gang: str) -> "Capacity":
        """Returns the same with these nodes kept for a gang that none was kept for.

        One that they were kept for before is let in, and goes there.
        """
        kept = copy(self)
        kept.held = {**self.held, **dict.fromkeys(names, gang)}
        kept._rows, kept._classes, kept._profiles = dict(self._rows), Counter(self._classes), dict(self._profiles)
        profiles = tuple(self._profiles)
        for name in names:
            row = self._rows[name]
            profile = profiles[row.profile]
            kept._rows[name] = row._replace(profile=kept._number(profile._replace(held=profile.held | {gang})))
            kept._classes[row] -= 1
            kept._classes[kept._rows[name]] += 1
        # What is counted stays right, because no shape that was counted names this gang.
        kept._forget()
        return kept

    def slots(self, shape: PodShape) -> int:
        """Returns how many pods of this shape alone find a place now, one after the other, wherever each goes."""
        found = self._slots.get(shape)
        if found is None:
            found = self._slots[shape] = self._count(shape, free=True)
        return found

    def most(self, shape: PodShape) -> int:
        """Returns how many pods of this shape the nodes take if nothing else is on them."""
        found = self._most.get(shape)
        if found is None:
            found = self._most[shape] = self._count(shape, free=False)
        return found

    def share_nodes(self, one: PodShape, other: PodShape) -> bool:
        """Whether there are nodes on which pods of both shapes may run."""
        return not self._matching(one).isdisjoint(self._matching(other))

    def runs_on(self, shape: PodShape, names: Iterable[str]) -> bool:
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

    def kinds(self, shape: PodShape) -> tuple[NodeInfo, ...]:
        """Returns one node, the last by name, of each kind on which pods of this shape may run if they are empty."""
        profiles = self._matching(shape)
        found = self._kinds.get(profiles)
        if found is None:
            rows = ((node, self._rows[node.name]) for node in sorted(self.nodes, key=attrgetter("name")))
            last = {(row.profile, row.whole): node for node, row in rows if row.profile in profiles}
            found = self._kinds[profiles] = tuple(last.values())
        return found

    def tainted(self, shape: PodShape) -> tuple[tuple[NodeInfo, int], ...]:
        """Returns one node of each kind that taints alone keep pods of this shape away from, and how many there are."""
        found = self._tainted.get(shape.chooses)
        if found is None:
            profiles = {
                number
                for number, profile in self._present.items()
                if selects(shape, _labels(self._keys, profile)) and untolerated(shape, profile.taints)
            }
            rows = ((node, self._rows[node.name]) for node in self.nodes)
            there = [(node, (row.profile, row.whole)) for node, row in rows if row.profile in profiles]
            numbers = Counter(kind for _, kind in there)
            found = tuple((node, numbers[kind]) for kind, node in {kind: node for node, kind in there}.items())
            self._tainted[shape.chooses] = found
        return found

    def free(self, shape: PodShape) -> dict[str, list[int]]:
        """Returns what is free on the nodes on which pods of this shape may run, in the order of `needs_of`."""
        profiles, needs = self._matching(shape), [at for at, _ in self._needs(shape)]
        return {name: [row.free[at] for at in needs] for name, row in self._rows.items() if row.profile in profiles}

    def _count(self, shape: PodShape, *, free: bool) -> int:
        known = self._free if free else self._whole
        there = known.get(shape.chooses)
        if there is None:
            there = known[shape.chooses] = self._amounts_on(self._matching(shape), free=free)
        for name, amount in shape.requests:
            if amount > there.most[self._place[name]]:
                return 0
        needs, total = self._needs(shape), 0
        for amounts, nodes in there.nodes.items():
            slots = _slots(amounts, needs)
            total += nodes * (min(slots, 1) if shape.one_per_node else slots) if slots > 0 else 0
        return total

    def _amounts_on(self, profiles: frozenset[int], *, free: bool) -> Amounts:
        """Returns what these nodes have."""
        found = self._amounts.get((profiles, free))
        if found is None:
            nodes = Counter[tuple[int, ...]]()
            for row, number in self._classes.items():
                if number and row.profile in profiles:
                    nodes[row.free if free else row.whole] += number
            most = tuple(map(max, zip(*nodes, strict=True))) or (0,) * len(self._resources)
            found = self._amounts[profiles, free] = Amounts(nodes, most)
        return found

    def _needs(self, shape: PodShape) -> list[tuple[int, int]]:
        """Returns what one pod takes, by the place of the resource in a row, in the order of `needs_of`."""
        return [(self._place[name], amount) for name, amount in needs_of(shape) if amount]

    def _matching(self, shape: PodShape) -> frozenset[int]:
        found = self._chosen.get(shape.chooses)
        if found is None:
            found = self._chosen[shape.chooses] = frozenset(
                number
                for number, profile in self._present.items()
                if matches(shape, _labels(self._keys, profile), profile.taints)
            )
        return found

    def _read(self) -> Iterator[tuple[str, Row]]:
        """Returns the nodes as shapes see them, by name."""
        keys, resources, nothing = self._keys, self._resources, (0,) * len(self._resources)
        named, unnamed = NODE_NAME in keys, tuple(amount_of(name, {}) for name in resources)
        for node in self.nodes:
            labels = {**node.labels, NODE_NAME: node.name} if named else node.labels
            whole = tuple(map(node.allocatable.get, resources, unnamed))
            free = tuple(map(sub, whole, map(node.used.get, resources, nothing))) if node.used else whole
            profile = Profile(tuple(map(labels.get, keys)), node.taints, frozenset())
            yield node.name, Row(self._number(profile), free, whole)

    def _number(self, profile: Profile) -> int:
        """Returns the number of a profile: numbers are compared far more often than profiles."""
        return self._profiles.setdefault(profile, len(self._profiles))


def amount_of(resource: str, amounts: Mapping[str, int]) -> int:
    """Returns how much there is of a resource, of which nodes do not name each."""
    return amounts.get(resource, int(resource.startswith(HOST_PORT)))


def needs_of(shape: PodShape) -> tuple[tuple[str, int], ...]:
    """Returns what one pod takes of a node, its place among the node's pods too."""
    return (*shape.requests, (PODS, 1))


def slots_in(shape: PodShape, free: Mapping[str, int]) -> int:
    """Returns how many pods of this shape fit into these amounts."""
    slots = max(0, min(amount_of(name, free) // amount for name, amount in needs_of(shape) if amount))
    return min(slots, 1) if shape.one_per_node else slots


def _slots(amounts: tuple[int, ...], needs: list[tuple[int, int]]) -> int:
    return min(amounts[at] // amount for at, amount in needs)


def _labels(keys: tuple[str, ...], profile: Profile) -> dict[str, str]:
    found = {key: value for key, value in zip(keys, profile.labels, strict=True) if value is not None}
    return found | {f"{HELD}{key}": "" for key in profile.held}
