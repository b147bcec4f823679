"""The room that there will be for one shape of pods as gangs end."""

from collections.abc import Iterable

from torchctl.controllers.coordinator.capacity import Capacity, needs_of, slots_in
from torchctl.controllers.coordinator.room import Hold, Room
from torchctl.controllers.coordinator.values import Holding, Shape, Waiting

__all__ = ["Future", "by_end", "reserve"]


class Future:
    """Counts the places for pods of one shape while gangs leave their nodes and come back to them."""

    def __init__(self, capacity: Capacity, shape: Shape) -> None:
        self._shape = shape
        self._free = {
            node.name: {name: node.allocatable.get(name, 0) - node.used.get(name, 0) for name, _ in needs_of(shape)}
            for node in capacity.matching(shape)
        }
        self.slots = capacity.slots(shape)

    def leave(self, holding: Holding) -> None:
        """Counts the places of a gang as free."""
        self._move(holding, 1)

    def come_back(self, holding: Holding) -> None:
        """Counts the places of a gang that had left as taken again."""
        self._move(holding, -1)

    def concerns(self, holding: Holding) -> bool:
        """Whether the gang has pods on nodes of this shape."""
        return any(name in self._free for name, _ in holding.placed)

    def _move(self, holding: Holding, sign: int) -> None:
        needs = needs_of(holding.shape)
        for name, count in holding.placed:
            free = self._free.get(name)
            if free is None:
                continue
            before = slots_in(self._shape, free)
            for resource, amount in needs:
                if resource in free:
                    free[resource] += sign * count * amount
            self.slots += slots_in(self._shape, free) - before


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

    Args:
        ending: The gangs that hold room, by their end (`by_end`).
    """
    shape = gang.shape
    needed = gang.pods + room.load(shape)
    slots = room.capacity.slots(shape)
    if slots >= needed:
        return Hold(gang.key, shape, gang.pods, now_s, slots - needed)
    if room.capacity.most(shape) < gang.pods:
        return None
    future = Future(room.capacity, shape)
    for holding in ending:
        future.leave(holding)
        if future.slots >= needed:
            return Hold(gang.key, shape, gang.pods, _known_end(holding, now_s), future.slots - needed)
    return None


def _known_end(holding: Holding, now_s: float) -> float | None:
    if holding.leaving_for:
        return now_s
    return None if holding.ends_s is None else max(now_s, holding.ends_s)
