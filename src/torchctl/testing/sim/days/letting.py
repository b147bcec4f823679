"""The rules of a day with the coordinator: pods, quotas, preemptions, half gangs.

They hold after every change of every object, and go by what is written alone. Pure.
"""

from dataclasses import dataclass, field
from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD
from torchctl.api.labels import ATTEMPT, JOB_UID, ROLE, ROLE_WORKER
from torchctl.api.phases import TERMINAL, Phase
from torchctl.runtime.clock import Clock
from torchctl.testing.fake.objects import Changed
from torchctl.testing.sim.days.jobs import SHARED

__all__ = ["Letting", "taken_back"]

Json = dict[str, Any]

GPUS_PER_POD = 8
LONGEST_HALF_S = 1500.0
"""Seconds for which a gang may be half placed: until its room is taken back, and what may delay the operator."""
MOST_ROUNDS = 5
"""Times at which jobs are told to leave for one job that waits: a node may go, or others take what was freed."""


def taken_back(job: Json) -> str:
    """Returns when the room of a job was taken back, and for which attempt; empty if it was not."""
    record = job.get("status", {}).get("admission", {})
    return f"{record.get('attempt', 0)} {record['takenBackTime']}" if record.get("takenBackTime") else ""


@dataclass(slots=True)
class _Gang:
    """What is known of one TorchrunJob, and of the pods of its attempts."""

    body: Json
    let_in: set[int] = field(default_factory=set)
    placed: dict[int, set[str]] = field(default_factory=dict)
    half_since_s: float | None = None

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def queue(self) -> str:
        return str(self.body["spec"]["jobQueue"])

    @property
    def priority(self) -> int:
        return int(self.body["spec"].get("priority", 0))

    @property
    def pods(self) -> int:
        return int(self.body["spec"]["numNodes"])

    @property
    def status(self) -> Json:
        found: Json = self.body.get("status", {})
        return found

    @property
    def holds(self) -> bool:
        """Whether it is let in, and its attempt is not over."""
        record = self.status.get("admission", {})
        mine = record.get("attempt", 0) == self.status.get("attempt", 0) and "letInTime" in record
        return mine and self.status.get("phase") not in (*TERMINAL, Phase.SUSPENDED)


class Letting:
    """Follows all changes and adds to `broken` what breaks a rule."""

    def __init__(self, clock: Clock, broken: list[str]) -> None:
        self._clock, self._broken = clock, broken
        self._gangs: dict[str, _Gang] = {}
        self._victims: dict[tuple[str, str], list[int]] = {}

    def on_change(self, changed: Changed) -> None:
        if changed.served.kind == TORCHRUN_JOB:
            self._see_job(changed)
        elif changed.served.kind == POD:
            self._see_pod(changed)
        else:
            return
        for gang in self._gangs.values():
            self._see_halves(gang)

    def _see_job(self, changed: Changed) -> None:
        uid = changed.new["metadata"]["uid"]
        if changed.type == "DELETED":
            self._gangs.pop(uid, None)
            return
        gang = self._gangs.setdefault(uid, _Gang(changed.new))
        gang.body = changed.new
        record = gang.status.get("admission", {})
        if "letInTime" in record:
            gang.let_in.add(record.get("attempt", 0))
            self._see_quota(gang)
        if changed.old is not None and taken_back(changed.new) not in ("", taken_back(changed.old)):
            self._see_victim(gang, record)

    def _see_quota(self, gang: _Gang) -> None:
        spec = SHARED.get(gang.queue)
        if spec is None:
            return
        held = [one for one in self._gangs.values() if one.queue == gang.queue and one.holds]
        if len(held) > spec["quota"].get("jobs", len(held)):
            self._broken.append(f"{gang.name}: queue {gang.queue} holds {len(held)} jobs")
        queues = [gang.queue]
        if "cohort" in spec:
            queues = [name for name, other in SHARED.items() if other.get("cohort") == spec["cohort"]]
        owned = sum(SHARED[name]["quota"]["gpus"] for name in queues)
        taken = sum(one.pods for one in self._gangs.values() if one.queue in queues and one.holds) * GPUS_PER_POD
        if taken > owned:
            self._broken.append(f"{gang.name}: {', '.join(queues)} hold {taken} GPUs of {owned}")

    def _see_victim(self, gang: _Gang, record: Json) -> None:
        preemptor = record.get("preemptedFor", "").rpartition("/")[2]
        winner = next((one for one in self._gangs.values() if one.name == preemptor), None)
        if winner is None:
            return  # it was deleted meanwhile, or nobody takes the room
        spec, theirs = SHARED.get(winner.queue, {}), SHARED.get(gang.queue, {})
        lower = winner.queue == gang.queue and winner.priority > gang.priority
        lent = spec.get("preemption") == "Reclaim" and spec.get("cohort") == theirs.get("cohort", "none")
        if "preemption" not in spec or not (lower or (lent and winner.queue != gang.queue)):
            self._broken.append(f"{gang.name}: has to leave for {winner.name}, which has no right to that")
        told = self._victims.setdefault((winner.body["metadata"]["uid"], record["takenBackTime"]), [])
        told.append(gang.pods)
        if len(told) > 1 and sum(told) - min(told) >= winner.pods:
            self._broken.append(f"{winner.name}: gangs of {told} pods leave for {winner.pods}")
        rounds = sum(uid == winner.body["metadata"]["uid"] for uid, _ in self._victims)
        if rounds > MOST_ROUNDS * (1 + winner.status.get("attempt", 0)):
            self._broken.append(f"{winner.name}: others were told {rounds} times to leave for it")

    def _see_pod(self, changed: Changed) -> None:
        meta = changed.new["metadata"]
        gang = self._gangs.get(meta.get("labels", {}).get(JOB_UID, ""))
        if gang is None or meta["labels"].get(ROLE) != ROLE_WORKER or "admission" not in gang.status:
            return
        attempt = int(meta["labels"][ATTEMPT])
        if changed.type == "ADDED" and attempt not in gang.let_in:
            self._broken.append(f"{gang.name}: {meta['name']} was made, and attempt {attempt} is not let in")
        if changed.new["spec"].get("nodeName"):
            gang.placed.setdefault(attempt, set()).add(meta["uid"])

    def _see_halves(self, gang: _Gang) -> None:
        """Notes since when some pods of a gang have had a node and others have not, of those that were never whole."""
        attempt = gang.status.get("attempt", 0)
        placed = len(gang.placed.get(attempt, ()))
        half = gang.holds and 0 < placed < gang.pods and "elastic" not in gang.body["spec"]
        if not half:
            gang.half_since_s = None
            return
        now_s = self._clock.monotonic()
        gang.half_since_s = now_s if gang.half_since_s is None else gang.half_since_s
        if now_s - gang.half_since_s > LONGEST_HALF_S:
            self._broken.append(f"{gang.name}: {placed} of {gang.pods} pods have had a node for {LONGEST_HALF_S:g} s")
