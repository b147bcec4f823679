"""What the Job controller sees at one moment, and what it then does. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchctl.testing.sim.jobs.pods import Worker

__all__ = ["Backoff", "Look", "Todo", "condition", "put", "tidy"]

Json = dict[str, Any]

BACKOFF_S = 10.0
MAX_BACKOFF_S = 600.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures since the last success. It is kept in memory: a controller that starts anew forgets it."""

    failures: int = 0
    last_s: float = 0.0

    def left_s(self, now_s: float) -> float:
        if not self.failures:
            return 0.0
        wait_s = min(BACKOFF_S * 2.0 ** min(self.failures - 1, 10), MAX_BACKOFF_S)
        return max(0.0, self.last_s + wait_s - now_s)


@dataclass(frozen=True, slots=True)
class Look:
    """A Job and its pods at one moment. `now` is the time in RFC 3339, `now_s` in seconds since the epoch."""

    job: Json
    pods: Sequence[Worker]
    backoff: Backoff
    now: str
    now_s: float
    started_s: float | None

    @property
    def spec(self) -> Json:
        spec: Json = self.job["spec"]
        return spec

    @property
    def status(self) -> Json:
        status: Json = self.job.get("status", {})
        return status

    @property
    def is_indexed(self) -> bool:
        return bool(self.spec.get("completionMode") == "Indexed")

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def replaces_only_failed(self) -> bool:
        return bool(self.spec.get("podReplacementPolicy") == "Failed")

    @property
    def leaves(self) -> bool:
        return "deletionTimestamp" in self.job["metadata"]

    @property
    def active(self) -> list[Worker]:
        return [pod for pod in self.pods if pod.is_active]

    @property
    def terminating(self) -> list[Worker]:
        return [pod for pod in self.pods if pod.is_terminating]

    def has_failed(self, pod: Worker) -> bool:
        """Tells if the pod counts as failed: without podReplacementPolicy Failed also one that is being deleted."""
        return pod.phase == "Failed" or (not self.replaces_only_failed and pod.leaves and pod.phase != "Succeeded")

    def condition(self, type_: str) -> Json | None:
        found = (one for one in self.status.get("conditions", ()) if one["type"] == type_ and one["status"] == "True")
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Todo:
    """What follows, in this order: delete and create pods, write a status, remove finalizers, write the last status.

    Attributes:
        delete: Pods to delete.
        create: Indexes to create pods for; None for a pod of a Job that is not Indexed.
        before: The status that is written while the counted pods still have their finalizers; None without a change.
        release: Pods that lose their finalizer.
        after: The status that is written in the end.
        again_s: Seconds after which time alone changes what is to be done.
    """

    delete: tuple[str, ...] = ()
    create: tuple[int | None, ...] = ()
    before: Json | None = None
    release: tuple[str, ...] = ()
    after: Json | None = None
    again_s: float | None = None
    backoff: Backoff = field(default_factory=Backoff)


def condition(look: Look, type_: str, reason: str, message: str) -> Json:
    return {
        "type": type_,
        "status": "True",
        "lastProbeTime": look.now,
        "lastTransitionTime": look.now,
        "reason": reason,
        "message": message,
    }


def put(status: Json, condition: Json) -> None:
    conditions = [*status.get("conditions", ())]
    at = next((place for place, one in enumerate(conditions) if one["type"] == condition["type"]), len(conditions))
    status["conditions"] = [*conditions[:at], condition, *conditions[at + 1 :]]


def tidy(status: Json) -> Json:
    """Returns the status as it is stored: `ready`, `terminating` and `uncountedTerminatedPods` stay though empty."""
    stays = ("ready", "terminating", "uncountedTerminatedPods")
    return {name: value for name, value in status.items() if value or name in stays}
