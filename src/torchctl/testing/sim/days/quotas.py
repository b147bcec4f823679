"""What the queues of a day allow their gangs to hold, and what they hold. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchctl.runtime.clock import Clock
from torchctl.testing.sim.days.gang import Gang

__all__ = ["Quotas"]

Json = dict[str, Any]


@dataclass(slots=True)
class Quotas:
    """Follows the queues. A quota counts for a while after it was changed, because the operator sees that later.

    Args:
        gangs: The gangs by their uid, which somebody else keeps up to date.
        late_s: Returns the seconds by which the operator's view may be late now.
    """

    clock: Clock
    gangs: Mapping[str, Gang]
    late_s: Callable[[], float]
    _specs: dict[str, list[tuple[float, Json]]] = field(default_factory=dict)

    def see_queue(self, queue: Json) -> None:
        known, now_s = self._specs.setdefault(queue["metadata"]["name"], []), self.clock.monotonic()
        if not known or known[-1][1] != queue["spec"]:
            known.append((now_s, queue["spec"]))

    def spec(self, queue: str) -> Json:
        """Returns the queue's settings; without any if there is no such queue."""
        found: Json = self._specs[queue][-1][1] if queue in self._specs else {}
        return found

    def exceeded(self, gang: Gang) -> Iterator[str]:
        """Yields the quotas that are exceeded with a gang that has just been let in."""
        spec, queue = self.spec(gang.queue), gang.queue
        held = sum(one.queue == queue and one.holds for one in self.gangs.values())
        if held > self._most(queue, "jobs", held):
            yield f"{gang.name}: queue {queue} holds {held} jobs"
        together = self._together(queue)
        bounds = [self._most(name, "gpus", None) for name in together]
        used = self._used(together)
        if spec.get("quota", {}).get("gpus") is not None and used > sum(bound or 0 for bound in bounds):
            yield f"{gang.name}: {', '.join(together)} hold {used} GPUs of {sum(bound or 0 for bound in bounds)}"

    def allows(self, gang: Gang) -> bool:
        """Whether nothing is borrowed and nothing exceeded if the gang is let in now."""
        quota, together = self.spec(gang.queue).get("quota", {}), self._together(gang.queue)
        held = sum(one.queue == gang.queue and one.holds for one in self.gangs.values())
        if held + 1 > quota.get("jobs", held + 1):
            return False
        if "gpus" not in quota:
            return True
        owned = sum(self.spec(name).get("quota", {}).get("gpus", 0) for name in together)
        asked = gang.pods * gang.gpus
        return bool(self._used([gang.queue]) + asked <= quota["gpus"] and self._used(together) + asked <= owned)

    def surely_allows(self, gang: Gang) -> bool:
        """Whether the same holds however long those that were told to leave hold what they have."""
        together = self._together(gang.queue)
        return self.allows(gang) and not any(one.queue in together and one.goes for one in self.gangs.values())

    def overdrawn(self, queue: str) -> bool:
        """Whether the queue or one of its cohort holds more than it owns, as after its quota was lowered."""
        names = self._together(queue)
        return any(self._used([name]) > self.spec(name).get("quota", {}).get("gpus", 10**9) for name in names)

    def _most(self, queue: str, name: str, default: Any) -> Any:
        """Returns the largest bound that the queue has had of late."""
        since_s, found = self.clock.monotonic() - self.late_s(), []
        known = self._specs.get(queue, [])
        for at, (_, spec) in enumerate(known):
            if at + 1 == len(known) or known[at + 1][0] > since_s:
                found.append(spec.get("quota", {}).get(name, default))
        return max(found, key=lambda bound: bound or 0, default=default)

    def _together(self, queue: str) -> list[str]:
        """Returns the queues of the same cohort."""
        cohort = self.spec(queue).get("cohort")
        return [name for name in self._specs if self.spec(name).get("cohort") == cohort] if cohort else [queue]

    def _used(self, queues: list[str]) -> int:
        return sum(one.pods * one.gpus for one in self.gangs.values() if one.queue in queues and one.holds)
