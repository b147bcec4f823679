"""The rules of a day with the coordinator: pods, quotas, preemptions, half gangs, room, reservations.

They hold after every change of every object, and go by what is written alone. Pure.
"""

from collections.abc import Callable
from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD
from torchctl.api.labels import ATTEMPT, JOB_UID, ROLE, ROLE_WORKER
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.clock import Clock
from torchctl.testing.fake.objects import Changed
from torchctl.testing.sim.days.gang import LATE_S, Gang, taken_back
from torchctl.testing.sim.days.losses import Losses
from torchctl.testing.sim.days.quotas import Quotas
from torchctl.testing.sim.days.reasons import Reasons
from torchctl.testing.sim.days.room import Rooms
from torchctl.testing.sim.days.scaling import PROVISION_S, Scaling

__all__ = ["Letting"]

Json = dict[str, Any]

LONGEST_HALF_S = 1500.0
"""Seconds for which a gang may be half placed: until its room is taken back, and what may delay the operator."""
MOST_ROUNDS = 5
"""Times at which jobs are told to leave for one job that waits: a node may go, or others take what was freed."""
RESERVE_S = 600.0
"""Seconds after which the operator keeps room for the first gang of a queue."""
LONG_SINCE_S = 300.0
"""Seconds that the operator may need for a decision: it may have to find another leader first."""
LOOK_S = 60.0
"""Seconds between two looks at those that wait."""


class Letting:
    """Follows all changes and adds to `broken` what breaks a rule.

    Args:
        behind_s: Returns the seconds by which the operator's view is later than ever otherwise, because of what the day
            did to its watches.
    """

    def __init__(
        self,
        clock: Clock,
        broken: list[str],
        behind_s: Callable[[], float] = lambda: 0.0,
        losses: Losses | None = None,
    ) -> None:
        self._clock, self._broken = clock, broken
        self._gangs: dict[str, Gang] = {}
        self._losses = losses or Losses()
        self._late_s = lambda: LATE_S + behind_s()
        self._quotas = Quotas(clock, self._gangs, self._late_s)
        self._rooms = Rooms(clock, broken, self._gangs, self._late_s)
        self._reasons = Reasons(clock, broken, self._quotas, self._rooms)
        self._scaling = Scaling(clock, broken, self._gangs, self._quotas, self._rooms)
        self._victims: dict[tuple[str, str, int], list[int]] = {}
        self._taken = 0
        """How many pods of others have taken a place so far: each may make another gang leave than it would have."""
        self._looked_s = 0.0
        self._kept_s = float("-inf")
        """When a job was last seen for which room is kept."""
        self._firsts: dict[str, tuple[str, float]] = {}
        """The uid of the first gang of each queue, and since when it is the first and its quota allows it."""

    def on_change(self, changed: Changed) -> None:
        self._rooms.on_change(changed)
        if changed.served.kind == TORCHRUN_JOB:
            self._see_job(changed)
        elif changed.served.kind == POD:
            self._see_pod(changed)
        elif changed.served.kind == TORCHRUN_QUEUE:
            self._quotas.see_queue(changed.new)
        now_s = self._clock.monotonic()
        if changed.served.kind in (TORCHRUN_JOB, POD):
            for gang in self._gangs.values():
                self._see_halves(gang, now_s)
        # Leases change all the time, so this looks also while nothing else happens.
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._see_waiting()

    def _see_job(self, changed: Changed) -> None:
        uid = changed.new["metadata"]["uid"]
        if changed.type == "DELETED":
            self._gangs.pop(uid, None)
            return
        gang = self._gangs.setdefault(uid, Gang(changed.new))
        before = changed.old or {}
        gang.see(changed.new, self._clock.monotonic())
        if self._losses.concerns(uid):
            gang.lost.add(Gang(before).attempt)
            return
        if "letInTime" in gang.record:
            gang.let_in.add(gang.attempt)
        known = Gang(before)
        if known.record.get("reserved") or known.leaves:
            self._kept_s = self._clock.monotonic()
        if gang.holds and not known.holds and gang.attempt not in gang.lost:
            self._see_let_in(gang, itself="reserved" in known.record)
        if gang.attempt == known.attempt and known.record.get("letInTime") not in (None, gang.record.get("letInTime")):
            self._broken.append(f"{gang.name}: attempt {gang.attempt} was let in, and that is told anew")
        if taken_back(changed.new) not in ("", taken_back(before)):
            self._see_victim(gang, gang.status["admission"])

    def _see_let_in(self, gang: Gang, *, itself: bool) -> None:
        """Judges a gang that has just been let in; `itself` says that room was kept for it."""
        self._broken += self._quotas.exceeded(gang)
        self._rooms.see_let_in(gang)
        self._scaling.see_let_in(gang)
        if itself or self._is_room_kept() or not gang.gpus or "avoidNodes" in gang.record:
            return
        for uid, since_s in self._firsts.values():
            first = self._gangs.get(uid)
            if first is not None and first.uid != gang.uid and self._is_overdue(first, since_s):
                self._broken.append(
                    f"{gang.name}: was let in, and no room is kept for {first.name}, which waits longer"
                )

    def _is_room_kept(self) -> bool:
        """Whether room is kept, or was of late: the records of one decision are written one after the other."""
        of_late = self._clock.monotonic() - self._kept_s < LATE_S
        return of_late or any(one.record.get("reserved") or one.leaves for one in self._gangs.values())

    def _is_overdue(self, gang: Gang, since_s: float) -> bool:
        """Whether room must be kept by now for a gang that has been the first of its queue since a time."""
        waited_s = self._clock.now().timestamp() - gang.created_s
        if not gang.waits or gang.autoscaled or not gang.whole_nodes or waited_s < RESERVE_S + LONG_SINCE_S:
            return False
        known = self._clock.monotonic() - since_s > LONG_SINCE_S
        return known and self._quotas.allows(gang) and self._rooms.waits_for_room(gang)

    def _see_waiting(self) -> None:
        """Notes who is the first of each queue, and judges what all are told and those that nothing keeps out."""
        self._reasons.see_waiting(gang for gang in self._gangs.values() if gang.waits)
        now_s, firsts = self._clock.now().timestamp(), dict[str, Gang]()
        for gang in sorted(self._gangs.values(), key=lambda one: (-one.priority, one.created_s, one.name)):
            if gang.waits and gang.not_before_s + LATE_S < now_s:
                firsts.setdefault(gang.queue, gang)
        # No room could be kept before its quota allowed it.
        allowed = {queue: gang for queue, gang in firsts.items() if self._quotas.allows(gang)}
        known = {queue: self._firsts.get(queue, ("", 0.0)) for queue in allowed}
        self._firsts = {
            queue: known[queue] if known[queue][0] == gang.uid else (gang.uid, self._clock.monotonic())
            for queue, gang in allowed.items()
        }
        judged = () if self._is_room_kept() else tuple(allowed.values())
        self._rooms.see_waiting(gang for gang in judged if not gang.autoscaled)
        self._scaling.see_waiting(judged)

    def _see_victim(self, gang: Gang, record: Json) -> None:
        if "preemptedFor" not in record:
            self._scaling.see_taken_back(gang)
            return
        preemptor = record["preemptedFor"].rpartition("/")[2]
        winner = next((one for one in self._gangs.values() if one.name == preemptor), None)
        if winner is None:
            return  # it was deleted meanwhile
        spec, theirs = self._quotas.spec(winner.queue), self._quotas.spec(gang.queue)
        lower = winner.queue == gang.queue and winner.highest > gang.lowest
        lent = spec.get("preemption") == "Reclaim" and spec.get("cohort") == theirs.get("cohort", "none")
        if "preemption" not in spec or not (lower or (lent and winner.queue != gang.queue)):
            self._broken.append(f"{gang.name}: has to leave for {winner.name}, which has no right to that")
        told = self._victims.setdefault((winner.uid, record["takenBackTime"], self._taken), [])
        told.append(gang.pods)
        if len(told) > 1 and sum(told) - min(told) >= winner.pods and not self._quotas.overdrawn(winner.queue):
            self._broken.append(f"{winner.name}: gangs of {told} pods leave for {winner.pods}")
        rounds = len({at for uid, at, _ in self._victims if uid == winner.uid})
        if rounds > MOST_ROUNDS * (1 + winner.attempt):
            self._broken.append(f"{winner.name}: others were told {rounds} times to leave for it")

    def _see_pod(self, changed: Changed) -> None:
        meta = changed.new["metadata"]
        gang = self._gangs.get(meta.get("labels", {}).get(JOB_UID, ""))
        if gang is None or meta["labels"].get(ROLE) != ROLE_WORKER or not gang.coordinated:
            was_placed = changed.old is not None and changed.old["spec"].get("nodeName")
            self._taken += bool(changed.new["spec"].get("nodeName") and not was_placed)
            return
        attempt = int(meta["labels"][ATTEMPT])
        if changed.type == "ADDED" and attempt not in gang.let_in:
            self._broken.append(f"{gang.name}: {meta['name']} was made, and attempt {attempt} is not let in")
        if changed.new["spec"].get("nodeName"):
            gang.placed.setdefault(attempt, set()).add(meta["uid"])

    def _see_halves(self, gang: Gang, now_s: float) -> None:
        """Notes since when some pods of a gang have had a node and others have not, of those that were never whole."""
        placed = len(gang.placed.get(gang.attempt, ()))
        half = gang.holds and 0 < placed < gang.pods and not gang.elastic
        if not half:
            gang.half_since_s = None
            return
        gang.half_since_s = now_s if gang.half_since_s is None else gang.half_since_s
        longest_s = LONGEST_HALF_S + (2 * PROVISION_S if gang.autoscaled else 0)  # others may be late after it
        if now_s - gang.half_since_s > longest_s:
            self._broken.append(f"{gang.name}: {placed} of {gang.pods} pods have had a node for {longest_s:g} s")
