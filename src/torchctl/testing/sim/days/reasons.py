"""The rule that what a gang is told is so: it is not told of a shortage for long that the cluster does not have.

Whoever counts a gang twice is short of what is there. Quotas and nodes are counted here from what is written and what
runs, and generously: what breaks the rule is wrong by any count. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torchctl.runtime.clock import Clock
from torchctl.testing.sim.days.gang import Gang
from torchctl.testing.sim.days.quotas import Quotas
from torchctl.testing.sim.days.room import Rooms

__all__ = ["LONGEST_UNTRUE_S", "Reasons"]

LONGEST_UNTRUE_S = 600.0
"""Seconds for which a gang may be told what is no longer so: the operator may have to find another leader first."""


@dataclass(slots=True)
class Reasons:
    """Looks at what gangs that wait are told, and adds to `broken` what is not so."""

    clock: Clock
    broken: list[str]
    quotas: Quotas
    rooms: Rooms
    _untrue_since_s: Mapping[str, float] = field(default_factory=dict)

    def see_waiting(self, gangs: Iterable[Gang]) -> None:
        """Looks at all gangs that wait."""
        now_s, before = self.clock.monotonic(), self._untrue_since_s
        untrue = {gang.uid: gang for gang in gangs if not self._is_short(gang)}
        self._untrue_since_s = {uid: before.get(uid, now_s) for uid in untrue}
        for uid, since_s in self._untrue_since_s.items():
            if now_s - since_s > LONGEST_UNTRUE_S:
                gang = untrue[uid]
                self.broken.append(f"{gang.name}: is told {gang.record['reason']} for long, and nothing is short")

    def _is_short(self, gang: Gang) -> bool:
        """Whether there may be less than a gang needs of what it is told to wait for."""
        match gang.record.get("reason"):
            case "QuotaShort":
                return "waitsFor" in gang.record or not self.quotas.surely_allows(gang)
            case "NodesShort":
                return not self.rooms.surely_fits(gang)
            case "NeverFits":
                return not (self.quotas.surely_allows(gang) and self.rooms.surely_fits(gang))
        return True
