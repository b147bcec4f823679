"""Whether a gang finds room, counting what is let in and not yet placed, and what is kept for others.

kube-scheduler places the pods of a gang one by one, wherever it likes. So what is let in and not yet placed is counted
as if each of its pods took the worst place for everybody else: a pod of one GPU may break a whole node of eight. A gang
is let in only if, even so, it and all gangs that are still being placed find their places. As soon as pods are placed,
the nodes themselves say what is free, and nothing has to be assumed.

Room is kept for a gang (a `Hold`) as in backfilling by reservation (EASY: Lifka 1995; Mu'alem and Feitelson 2001), on
nodes that are chosen for it: others run there only if they end before its room is there, or if enough is left then.
Who does not is let in for the other nodes.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchctl.controllers.coordinator.alike import Kind
from torchctl.controllers.coordinator.capacity import Capacity, needs_of
from torchctl.controllers.coordinator.matching import HELD
from torchctl.controllers.coordinator.values import Holding, PodShape, Requirement, Waiting

__all__ = ["Hold", "Room", "taken_by"]


@dataclass(slots=True)
class Hold:
    """Room that is kept for a gang.

    Args:
        gang: The gang.
        nodes: Where the room is kept.
        until_s: When its room is there at the latest; None: that rests on gangs whose end nobody knows.
        spare: Pods of its shape for which there will be room beside it then, on the same nodes.
    """

    gang: Waiting
    nodes: frozenset[str]
    until_s: float | None
    spare: int
    shape: PodShape = field(init=False)
    """The shape of the gang, on the nodes that are kept for it."""

    def __post_init__(self) -> None:
        self.shape = self.gang.shape.needing(Requirement(f"{HELD}{self.gang.key}", "Exists"))

    @property
    def key(self) -> str:
        return self.gang.key


def taken_by(pod: PodShape, shape: PodShape) -> int:
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
        self._coming: dict[PodShape, int] = {}
        self._expects: dict[str, int] = {}
        self._starting: set[PodShape] = set()
        """Shapes of gangs that have never run."""
        self._lost: dict[PodShape, int] = {}
        self._came: list[tuple[PodShape, int]] = []
        self._load: dict[PodShape, tuple[int, int]] = {}
        """The load of shapes that were asked for, and how many of `_came` are in it."""
        self._taken: dict[tuple[PodShape, PodShape], int] = {}
        self._failed: dict[PodShape, int] = {}
        self.full: set[Kind] = set()
        """Gangs for which `way_in` found none and finds none whatever their deadlines, unless room is kept for them."""
        self._no_way_in: set[tuple[Kind, float | None]] = set()
        """Gangs for which `way_in` found none, by all that it depends on."""
        self._outside: dict[PodShape, PodShape | None] = {}
        self.holds: dict[str, Hold] = {}
        # Those of which all pods surely come are counted first: the others get what they leave.
        for holding in sorted(holdings, key=lambda one: (one.has_run, one.autoscaled, one.key)):
            coming = 0 if holding.leaving_for else self._expected(holding)
            if coming:
                self._expects[holding.key] = coming
                self._come(holding.shape, coming, starts=not holding.has_run)
                self._lost[holding.shape] = self._lost.get(holding.shape, 0) + capacity.lost_to(holding)

    def load(self, shape: PodShape) -> int:
        """Returns how many places for pods of this shape may go to what is let in and not yet placed.

        Those that such a gang of this shape cannot use itself, because it has a pod there, count too.
        """
        known = self._load.get(shape)
        if known is None:
            load, more = self._lost.get(shape, 0), iter(self._coming.items())
        else:
            load, seen = known
            more = iter(self._came[seen:])
        load += sum(pods * self.taken(coming, shape) for coming, pods in more)
        self._load[shape] = load, len(self._came)
        return load

    def expects(self, holding: Holding) -> int:
        """Returns how many pods of a gang that is let in are still to be placed."""
        return self._expects.get(holding.key, 0)

    def load_on(self, shape: PodShape, nodes: Iterable[str], ended: Iterable[Holding]) -> int:
        """Returns the load of what might be placed on these nodes, once some gangs have ended."""
        names, coming = tuple(nodes), Counter(self._coming)
        for holding in ended:
            coming[holding.shape] -= self.expects(holding)
        return sum(
            pods * taken_by(other, shape)
            for other, pods in coming.items()
            if pods and self.capacity.runs_on(other, names)
        )

    def left(self, shape: PodShape) -> int:
        """Returns how many pods of this shape surely find a place now."""
        return max(0, self.capacity.slots(shape) - self.load(shape))

    def keep(self, hold: Hold) -> None:
        """Keeps room for a gang from now on."""
        self.holds[hold.key] = hold
        self.capacity = self.capacity.keeping(hold.nodes, hold.key)
        self._outside, self.full, self._no_way_in = {}, set(), set()

    def way_in(self, gang: Waiting) -> PodShape | None:
        """Returns the shape with which the gang may be let in now: its own, or limited to some nodes; None if neither.

        A gang that room is kept for goes there. Another goes to the other nodes, if it would delay that one. One that
        nodes come for needs no room, but must not take that of gangs that are being placed.
        """
        if gang.autoscaled:
            chosen = gang.shape if self.keeper(gang) is None else self._beside(gang.shape)
            return chosen if chosen is not None and self._leaves_room(chosen, self._coming_of(gang, chosen)) else None
        shape, pods = gang.shape, gang.pods
        own = self.holds.get(gang.key)
        if own is not None:
            return next((one for one in (shape, own.shape) if self.fits(one, pods)), None)
        if gang.kind in self.full:
            return None
        if pods > self.capacity.slots(shape):
            self.full.add(gang.kind)  # on a part of the nodes there are no more places than on all of them
            return None
        if (gang.kind, gang.lasts_s) in self._no_way_in:
            return None
        fits = self.fits(shape, pods)
        if fits and self.keeper(gang) is None:
            return shape
        outside = self._beside(shape)
        if outside is not None and self.fits(outside, pods):
            return outside
        if fits:
            self._no_way_in.add((gang.kind, gang.lasts_s))
        else:
            self.full.add(gang.kind)
        return None

    def wants_held(self, shape: PodShape) -> bool:
        """Whether pods of this shape might run on nodes that are kept for a gang."""
        return any(self.capacity.share_nodes(shape, hold.shape) for hold in self.holds.values())

    def fits(self, shape: PodShape, pods: int) -> bool:
        """Whether so many pods find a place now, and those of the gangs that are being placed do, too."""
        if pods >= self._failed.get(shape, pods + 1):
            return False
        if self._fits(shape, pods):
            return True
        self._failed[shape] = pods
        return False

    def _beside(self, shape: PodShape) -> PodShape | None:
        """Returns the shape limited to nodes that are kept for nobody; None if it might run on no other."""
        if shape not in self._outside:
            kept = (Requirement(f"{HELD}{key}", "DoesNotExist") for key in sorted(set(self.capacity.held.values())))
            self._outside[shape] = shape.needing(*kept) if self.wants_held(shape) else None
        return self._outside[shape]

    def _fits(self, shape: PodShape, pods: int) -> bool:
        slots = self.capacity.slots(shape)
        if pods > slots or self.load(shape) + pods > slots:
            return False
        return self._leaves_room(shape, pods)

    def _leaves_room(self, shape: PodShape, pods: int) -> bool:
        """Whether the gangs that are being placed still find their places beside so many pods."""
        for coming in self._coming:
            taken = self.taken(shape, coming)
            if taken and coming in self._starting and (shape.unmodelled or coming.unmodelled):
                return False
            if taken and self.load(coming) + pods * taken > self.capacity.slots(coming):
                return False
        return True

    def keeper(self, gang: Waiting) -> Hold | None:
        """Returns a hold that the gang would delay, if there is one."""
        return next((hold for hold in self.holds.values() if hold.key != gang.key and self._delays(gang, hold)), None)

    def take(self, gang: Waiting, shape: PodShape) -> None:
        """Lets the gang in, with the shape that `way_in` returned."""
        if self.holds.pop(gang.key, None) is not None:
            self.full, self._no_way_in = set(), set()  # others may have waited for this one
        for hold in self.holds.values():
            if not self._ends_before(gang, hold):
                hold.spare -= gang.pods * self.taken(shape, hold.shape)
        self._come(shape, self._coming_of(gang, shape))

    def _coming_of(self, gang: Waiting, shape: PodShape) -> int:
        """Returns how many pods of the gang may be placed on the nodes that are there."""
        return min(gang.pods, self.capacity.slots(shape)) if gang.autoscaled else gang.pods

    def taken(self, pod: PodShape, shape: PodShape) -> int:
        """Returns how many places for pods of `shape` a pod of `pod` takes at most; 0 if they share no node."""
        found = self._taken.get((pod, shape))
        if found is None:
            found = taken_by(pod, shape) if self.capacity.share_nodes(pod, shape) else 0
            self._taken[pod, shape] = found
        return found

    def _expected(self, holding: Holding) -> int:
        """Returns how many missing pods of a gang to expect.

        Of one that may lack them for ever, that is as many as fit now, but for those that cannot be created.
        """
        if not _may_lack_pods(holding):
            return holding.missing
        taken = max(self.capacity.lost_to(holding), self._coming.get(holding.shape, 0))
        return max(0, min(holding.missing - holding.refused, self.capacity.slots(holding.shape) - taken))

    def _come(self, shape: PodShape, pods: int, *, starts: bool = True) -> None:
        if starts:
            self._starting.add(shape)
        self._coming[shape] = self._coming.get(shape, 0) + pods
        self._came.append((shape, pods))

    def _delays(self, gang: Waiting, hold: Hold) -> bool:
        taken = gang.pods * self.taken(gang.shape, hold.shape)
        return taken > max(0, hold.spare) and not self._ends_before(gang, hold)

    def _ends_before(self, gang: Waiting, hold: Hold) -> bool:
        if gang.lasts_s is None or hold.until_s is None:
            return False
        return self._now_s + gang.lasts_s <= hold.until_s


def _may_lack_pods(holding: Holding) -> bool:
    """Whether nobody waits for its pods without room: it has run without them, or nodes may come for them."""
    return holding.has_run or holding.autoscaled
