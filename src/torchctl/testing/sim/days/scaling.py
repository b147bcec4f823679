"""The rules of gangs for which an autoscaler brings nodes: they may hold half of what they need, but not for ever.

Two of them may each hold what the other one lacks. So they leave one by one, the last one first, and no further one is
let in while one is late. They go by what is written and what runs, and count generously. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torchctl.runtime.clock import Clock
from torchctl.testing.sim.days.gang import LATE_S, Gang
from torchctl.testing.sim.days.quotas import Quotas
from torchctl.testing.sim.days.room import Rooms

__all__ = ["LONGEST_IDLE_S", "PROVISION_S", "Scaling"]

PROVISION_S = 1200.0
"""Seconds for which the operator waits for nodes."""
LONGEST_IDLE_S = 900.0
"""Seconds for which the first gang may wait to be let in although nothing keeps it out."""


@dataclass(slots=True)
class Scaling:
    """Judges gangs for which nodes are brought, and adds to `broken` what breaks a rule.

    Args:
        gangs: All gangs by their uid, which somebody else keeps up to date.
    """

    clock: Clock
    broken: list[str]
    gangs: Mapping[str, Gang]
    quotas: Quotas
    rooms: Rooms
    _left: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Name and attempt of those that were told to leave nodes, and may still have pods there, by their uid."""
    _idle_since_s: Mapping[str, float] = field(default_factory=dict)

    def see_let_in(self, gang: Gang) -> None:
        """Judges a gang that has just been let in."""
        for late in self._late(PROVISION_S + LATE_S):
            if gang.autoscaled and late.uid != gang.uid:
                self.broken.append(f"{gang.name}: was let in, and {late.name} still waits for nodes")

    def see_taken_back(self, gang: Gang) -> None:
        """Judges a gang whose room has just been taken back because nodes did not come."""
        if not gang.autoscaled or not self._is_half(gang):
            return
        for other in self._late(PROVISION_S + LATE_S):
            if other.uid != gang.uid and self._is_half(other) and _is_before(gang, other):
                self.broken.append(f"{gang.name}: leaves its nodes, and {other.name} came later and stays")
        self._left = {uid: left for uid, left in self._left.items() if self.rooms.nodes_of(uid, left[1])}
        for uid, (name, _) in self._left.items():
            if uid != gang.uid:
                self.broken.append(f"{gang.name}: leaves its nodes, and {name} has not yet left its own")
        self._left[gang.uid] = gang.name, gang.attempt

    def see_waiting(self, firsts: Iterable[Gang]) -> None:
        """Judges the first gangs of their queues, which no quota keeps out and for nobody else room is kept."""
        now_s, before = self.clock.monotonic(), self._idle_since_s
        free = not any(self._late(PROVISION_S - LATE_S)) and self.rooms.is_calm()
        kept_out = {gang.uid: gang for gang in firsts if gang.autoscaled and free and self.quotas.surely_allows(gang)}
        self._idle_since_s = {uid: before.get(uid, now_s) for uid in kept_out}
        for uid, since_s in self._idle_since_s.items():
            if now_s - since_s > LONGEST_IDLE_S:
                self.broken.append(f"{kept_out[uid].name}: waits for long, although nodes would be brought for it")

    def _scaled(self) -> list[Gang]:
        return [one for one in self.gangs.values() if one.autoscaled and one.holds]

    def _late(self, after_s: float) -> list[Gang]:
        """Returns the gangs that have lacked nodes for so long since they were let in."""
        now_s = self.clock.now().timestamp()
        return [one for one in self._scaled() if not one.leaves and one.lacks and now_s - one.let_in_s > after_s]

    def _is_half(self, gang: Gang) -> bool:
        """Whether some pods of a gang have had a node for a while, and others have never had one."""
        if gang.half_since_s is None or not self.rooms.nodes_of(gang.uid, gang.attempt):
            return False
        return self.clock.monotonic() - gang.half_since_s > LATE_S


def _is_before(gang: Gang, other: Gang) -> bool:
    """Whether a gang surely comes before another one: by priority, then by when it was let in."""
    if gang.lowest != other.highest:
        return gang.lowest > other.highest
    return gang.highest == gang.lowest == other.lowest and gang.let_in_s < other.let_in_s
