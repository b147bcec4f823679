"""Whether a gang finds room, counting what is let in and not yet placed, and what is kept for others.

kube-scheduler places the pods of a gang one by one, wherever it likes. So what is let in and not yet placed is counted
as if each of its pods took the worst place for everybody else: a pod of one GPU may break a whole node of eight. A gang
is let in only if, even so, it and all gangs that are still being placed find their places. As soon as pods are placed,
the nodes themselves say what is free, and nothing has to be assumed.

Room is kept for a gang (a `Hold`) as in backfilling by reservation (EASY: Lifka 1995; Mu'alem and Feitelson 2001):
others go first only if they end before its room is there, or if enough is left then, wherever they are placed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torchctl.controllers.coordinator.capacity import Capacity, needs_of
from torchctl.controllers.coordinator.values import Holding, Shape, Waiting

__all__ = ["Hold", "Room", "taken_by"]


@dataclass(slots=True)
class Hold:
    """Room that is kept for a gang.

    Args:
        key: The gang.
        until_s: When its room is there at the latest; None: that rests on gangs whose end nobody knows.
        spare: Pods of its shape for which there will be room beside it then.
    """

    key: str
    shape: Shape
    pods: int
    until_s: float | None
    spare: int


def taken_by(pod: Shape, shape: Shape) -> int:
    """Returns how many places for pods of `shape` a pod of `pod` takes at most, if both may run on the same node.

    floor(a) - floor(a - b) is at most ceil(b), for the resource of which the pod takes most.
    """
    asked = dict(needs_of(pod))
    return max(-(-asked.get(name, 0) // amount) for name, amount in needs_of(shape) if amount)


class Room:
    """The room that is left while gangs are let in, one after the other. What did not fit once does not fit later."""

    def __init__(self, capacity: Capacity, holdings: Iterable[Holding], now_s: float) -> None:
        self.capacity = capacity
        self._now_s = now_s
        self._coming: dict[Shape, int] = {}
        self._load: dict[Shape, int] = {}
        self._taken: dict[tuple[Shape, Shape], int] = {}
        self.holds: list[Hold] = []
        for holding in holdings:
            if holding.missing and not holding.leaving_for:
                self._come(holding.shape, holding.missing)

    def load(self, shape: Shape) -> int:
        """Returns how many places for pods of this shape may go to what is let in and not yet placed."""
        found = self._load.get(shape)
        if found is None:
            found = sum(pods * self.taken(coming, shape) for coming, pods in self._coming.items())
            self._load[shape] = found
        return found

    def left(self, shape: Shape) -> int:
        """Returns how many pods of this shape surely find a place now."""
        return max(0, self.capacity.slots(shape) - self.load(shape))

    def fits(self, gang: Waiting) -> bool:
        """Whether all pods of the gang find a place now, and those of the gangs that are being placed do, too."""
        shape, pods = gang.shape, gang.pods
        if self.load(shape) + pods > self.capacity.slots(shape):
            return False
        for coming in self._coming:
            if coming == shape and not shape.unmodelled:
                continue
            taken = self.taken(shape, coming)
            if taken and (shape.unmodelled or coming.unmodelled):
                return False
            if taken and self.load(coming) + pods * taken > self.capacity.slots(coming):
                return False
        return True

    def keeper(self, gang: Waiting) -> Hold | None:
        """Returns a hold that the gang would delay, if there is one."""
        return next((hold for hold in self.holds if hold.key != gang.key and self._delays(gang, hold)), None)

    def take(self, gang: Waiting) -> None:
        """Lets the gang in."""
        self.holds = [hold for hold in self.holds if hold.key != gang.key]
        for hold in self.holds:
            if not self._ends_before(gang, hold):
                hold.spare -= gang.pods * self.taken(gang.shape, hold.shape)
        self._come(gang.shape, gang.pods)

    def taken(self, pod: Shape, shape: Shape) -> int:
        """Returns how many places for pods of `shape` a pod of `pod` takes at most; 0 if they share no node."""
        found = self._taken.get((pod, shape))
        if found is None:
            found = taken_by(pod, shape) if self.capacity.share_nodes(pod, shape) else 0
            self._taken[pod, shape] = found
        return found

    def _come(self, shape: Shape, pods: int) -> None:
        self._coming[shape] = self._coming.get(shape, 0) + pods
        for other in self._load:
            self._load[other] += pods * self.taken(shape, other)

    def _delays(self, gang: Waiting, hold: Hold) -> bool:
        taken = gang.pods * self.taken(gang.shape, hold.shape)
        return taken > max(0, hold.spare) and not self._ends_before(gang, hold)

    def _ends_before(self, gang: Waiting, hold: Hold) -> bool:
        if gang.lasts_s is None or hold.until_s is None:
            return False
        return self._now_s + gang.lasts_s <= hold.until_s
