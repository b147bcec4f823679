"""The rule of Events: none is recorded about a job more often than what it tells of happened. Pure."""

from collections import Counter, defaultdict
from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.runtime.kinds import EVENT
from torchctl.testing.fake.objects import Changed
from torchctl.testing.sim.days.losses import Losses

__all__ = ["Telling"]

Json = dict[str, Any]


class Telling:
    """Follows all changes and adds to `broken` what breaks the rule.

    A reason happens when a condition of the job turns to it, or when the phase does. The status is written first, so
    an operator that is killed may tell of it never, but not twice.
    """

    def __init__(self, broken: list[str], losses: Losses | None = None) -> None:
        self._broken = broken
        self._losses = losses or Losses()
        self._happened: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._told: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def on_change(self, changed: Changed) -> None:
        uid = changed.new["metadata"]["uid"]
        if changed.served.kind == TORCHRUN_JOB and not self._losses.concerns(uid):
            self._happened[uid].update(_reached(changed.old, changed.new))
        elif changed.served.kind == EVENT and changed.type != "DELETED":
            self._see_event(changed)

    def _see_event(self, changed: Changed) -> None:
        event = changed.new
        subject, reason = event["involvedObject"], event["reason"]
        if subject["kind"] != TORCHRUN_JOB.kind or event["reportingComponent"] != "torchctl":
            return
        told, happened = self._told[subject["uid"]], self._happened[subject["uid"]]
        told[reason] += event["count"] - (changed.old["count"] if changed.old is not None else event["count"] - 1)
        if told[reason] > happened[reason]:
            times = f"{told[reason]} times, and it happened {happened[reason]} times"
            self._broken.append(f"{subject['name']}: was told {reason} {times}: {event['message']}")


def _reached(old: Json | None, new: Json) -> set[str]:
    """Returns the reasons that conditions turned to with a change, and the phase if it did."""
    before, after = ((job or {}).get("status", {}) for job in (old, new))
    known = {one["type"]: (one["status"], one["reason"]) for one in before.get("conditions", ())}
    found = {
        one["reason"] for one in after.get("conditions", ()) if known.get(one["type"]) != (one["status"], one["reason"])
    }
    phase = after.get("phase", "")
    return found | ({phase} if phase != before.get("phase", "") else set())
