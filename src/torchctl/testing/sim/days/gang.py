"""What is known of one job that the coordinator lets in, from its TorchrunJob and the pods of its attempts."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchctl.api.phases import TERMINAL, Phase
from torchctl.testing.sim.days.jobs import GPUS, SHARED

__all__ = ["LATE_S", "Gang", "is_let_in", "taken_back"]

Json = dict[str, Any]

WHOLE = 8
"""GPUs of a node."""
LATE_S = 60.0
"""Seconds by which the operator's view of the cluster may be late if no watch of its leader is silent.

A watch may be refused for some seconds, a decision may be made again, and another leader may have to be found.
"""


def is_let_in(job: Json) -> bool:
    """Whether the last that the coordinator said of a job is that it is let in."""
    return "letInTime" in job.get("status", {}).get("admission", {})


def taken_back(job: Json) -> str:
    """Returns when the room of a job was taken back, and for which attempt; empty if it was not."""
    record = job.get("status", {}).get("admission", {})
    return f"{record.get('attempt', 0)} {record['takenBackTime']}" if record.get("takenBackTime") else ""


@dataclass(slots=True)
class Gang:
    """One job.

    Attributes:
        body: Its TorchrunJob.
        let_in: The attempts that were let in.
        lost: The attempts of which somebody has removed or altered the status.
        placed: The uids of pods that have had a node, by attempt.
        half_since_s: Since when some of its pods have a node, and others have none.
        waits_since_s: Since when it waits to be let in; None if it does not.
        priorities: Its priorities of late, each with the time at which it became so.
    """

    body: Json
    let_in: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    placed: dict[int, set[str]] = field(default_factory=dict)
    half_since_s: float | None = None
    waits_since_s: float | None = None
    priorities: list[tuple[float, int]] = field(default_factory=list)

    def see(self, body: Json, now_s: float) -> None:
        """Takes a newer TorchrunJob."""
        self.body = body
        self.waits_since_s = (now_s if self.waits_since_s is None else self.waits_since_s) if self.waits else None
        last = self.priorities[-1:]
        if not last or last[0][1] != self.priority:
            self.priorities = [
                *(one for one in self.priorities if one[0] > now_s - LATE_S),
                *last,
                (now_s, self.priority),
            ]

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

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
    def highest(self) -> int:
        """The highest priority of late."""
        return max(priority for _, priority in self.priorities)

    @property
    def lowest(self) -> int:
        return min(priority for _, priority in self.priorities)

    @property
    def pods(self) -> int:
        return int(self.body["spec"]["numNodes"])

    @property
    def gpus(self) -> int:
        """The GPUs of each pod."""
        return GPUS.get(self.queue, 0)

    @property
    def whole_nodes(self) -> bool:
        return self.gpus == WHOLE

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler brings nodes for its pods once they wait."""
        return SHARED.get(self.queue, {}).get("capacity") == "Autoscaled"

    @property
    def elastic(self) -> bool:
        return "elastic" in self.body["spec"]

    @property
    def status(self) -> Json:
        found: Json = self.body.get("status", {})
        return found

    @property
    def attempt(self) -> int:
        return int(self.status.get("attempt", 0))

    @property
    def record(self) -> Json:
        """What the coordinator says of the current attempt."""
        found: Json = self.status.get("admission", {})
        return found if found.get("attempt", 0) == self.attempt else {}

    def may_use(self, node: str) -> bool:
        """Whether its pods may run on a node, by the limits with which it was let in."""
        only = self.record.get("onlyNodes")
        return node not in self.record.get("avoidNodes", ()) and (only is None or node in only)

    @property
    def holds(self) -> bool:
        """Whether it is let in, and its attempt is not over; if its record was lost, whether it was let in."""
        granted = "letInTime" in self.record or self.attempt in self.let_in & self.lost
        return granted and self.status.get("phase") not in (*TERMINAL, Phase.SUSPENDED)

    @property
    def let_in_s(self) -> float:
        """When its current attempt was let in, or if that was lost, about when it was started."""
        started = self.status.get("attemptStartTime", self.body["metadata"]["creationTimestamp"])
        return _seconds(self.record.get("letInTime", started))

    @property
    def lacks(self) -> int:
        """The pods of its current attempt that have never had a node."""
        return max(0, self.pods - len(self.placed.get(self.attempt, ())))

    @property
    def coordinated(self) -> bool:
        """Whether the coordinator has a say about it."""
        return "admission" in self.status or bool(self.let_in)

    @property
    def leaves(self) -> bool:
        """Whether its room was taken back."""
        return "takenBackTime" in self.record

    @property
    def goes(self) -> bool:
        """Whether room that it had was taken back, which it may hold until its last pod is gone."""
        return "takenBackTime" in self.status.get("admission", {}) and self.status.get("phase") not in TERMINAL

    @property
    def waits(self) -> bool:
        """Whether it waits to be let in, and nobody stops it."""
        stopped = self.body["spec"].get("suspend") or "deletionTimestamp" in self.body["metadata"]
        return bool(self.record) and self.status.get("phase") == Phase.QUEUED and not self.holds and not stopped

    @property
    def created_s(self) -> float:
        return _seconds(self.body["metadata"]["creationTimestamp"])

    @property
    def not_before_s(self) -> float:
        """When it may be let in again after its pods found no node."""
        moment = self.status.get("admission", {}).get("notBeforeTime")
        return _seconds(moment) if moment else 0.0


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
