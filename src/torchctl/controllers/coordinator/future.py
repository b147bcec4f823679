"""The room that there will be for one shape of pods as gangs end."""

from collections.abc import Iterable
from itertools import chain
from operator import floordiv

from torchctl.controllers.coordinator.capacity import Capacity, needs_of
from torchctl.controllers.coordinator.room import Hold, Room
from torchctl.controllers.coordinator.values import Holding, PodShape, Waiting

__all__ = ["Future", "by_end", "reserve"]


class Future:
    """Counts the places for pods of one shape while gangs leave their nodes and come back to them."""

    def __init__(self, capacity: Capacity, shape: PodShape) -> None:
        needs = [(name, amount) for name, amount in needs_of(shape) if amount]
        self._at = {name: at for at, (name, _) in enumerate(needs)}
        self._amounts = [amount for _, amount in needs]
        self._most = 1 if shape.one_per_node else None
        self._free = capacity.free(shape)
        self._now = {name: self._slots(free) for name, free in self._free.items()}
        self._places = dict(self._now)
        self.slots = sum(self._now.values())

    def leave(self, holding: Holding) -> None:
        """Counts the places of a gang as free."""
        self._move(holding, 1)

    def come_back(self, holding: Holding) -> None:
        """Counts the places of a gang that had left as taken again."""
        self._move(holding, -1)

    def concerns(self, holding: Holding) -> bool:
        """Whether the gang has pods on nodes of this shape."""
        return any(name in self._free for name, _ in holding.placed)

    def nodes(self, needed: int) -> frozenset[str]:
        """Returns nodes with so many places, those that are free now last: until then they serve others."""
        places = self._places
        able = sorted((name for name, slots in places.items() if slots), key=lambda name: (self._now[name], name))
        chosen = set()
        for name in able:
            if needed > 0:
                chosen.add(name)
                needed -= places[name]
        return frozenset(chosen)

    def places(self, names: Iterable[str]) -> int:
        """Returns the places on these nodes."""
        return sum(self._places[name] for name in names)

    def _slots(self, free: list[int]) -> int:
        slots: int = max(0, min(map(floordiv, free, self._amounts)))
        return slots if self._most is None else min(slots, self._most)

    def _move(self, holding: Holding, sign: int) -> None:
        freed = [(self._at[name], sign * amount) for name, amount in needs_of(holding.shape) if name in self._at]
        for name, count in holding.placed:
            free = self._free.get(name)
            if free is None:
                continue
            for at, amount in freed:
                free[at] += count * amount
            places = self._slots(free)
            self.slots += places - self._places[name]
            self._places[name] = places


def by_end(holdings: Iterable[Holding]) -> list[Holding]:
    """Sorts gangs by when they end: those that leave, then by deadline, then those of unknown end, oldest first."""
    return sorted(holdings, key=_end)


def _end(holding: Holding) -> tuple[int, float, str]:
    if holding.leaving_for:
        return 0, 0.0, holding.key
    if holding.ends_s is not None:
        return 1, holding.ends_s, holding.key
    return 2, holding.let_in_s, holding.key


def reserve(gang: Waiting, ending: Iterable[Holding], room: Room, now_s: float) -> Hold | None:
    """Returns the hold that keeps room for a gang; None if there is no room even when all other gangs have ended.

    What is being placed may go to the nodes that are chosen, too, until it ends as any gang does.

    Args:
        ending: The gangs that hold room, by their end (`by_end`).
    """
    if room.capacity.most(gang.shape) < gang.pods:
        return None
    future, needed, until_s = Future(room.capacity, gang.shape), gang.pods, now_s
    ended: list[Holding] = []
    for holding in chain((None,), ending):
        if holding is not None:
            future.leave(holding)
            known = _known_end(holding, now_s)
            until_s = float("inf") if known is None else max(until_s, known)
            if room.expects(holding):
                ended.append(holding)
                needed = gang.pods
        while future.slots >= needed:
            nodes = future.nodes(needed)
            load = room.load_on(gang.shape, nodes, ended)
            if gang.pods + load <= needed:
                spare = future.places(nodes) - needed
                return Hold(gang, nodes, None if until_s == float("inf") else until_s, spare)
            needed = gang.pods + load
    return None


def _known_end(holding: Holding, now_s: float) -> float | None:
    if holding.leaving_for:
        return now_s
    return None if holding.ends_s is None else max(now_s, holding.ends_s)
