"""Which jobs are left out of decisions for a while, because records about them were refused. Pure.

Each decision would let such a job in again, and the room that it never takes would be nobody's. It is left out for a
minute, which doubles each time in a row, up to an hour. A new leader does not know that, which costs it one decision.
"""

from collections.abc import Iterable

from torchctl.api.job import TorchrunJob
from torchctl.controllers.coordinator.jobgangs import waits
from torchctl.controllers.coordinator.records import pause

__all__ = ["RefusedRecords"]


class RefusedRecords:
    """Remembers how often in a row records about jobs were refused.

    Args:
        first_s: Seconds for which a job is left out at first.
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._times: dict[str, int] = {}
        self._until_s: dict[str, float] = {}

    def refuse(self, job: TorchrunJob, at_s: float) -> None:
        """Takes note of a refusal, at a time on any monotonic scale."""
        uid = job.metadata.uid
        self._times[uid] = self._times.get(uid, 0) + 1
        self._until_s[uid] = at_s + pause(self._times[uid], self._first_s).total_seconds()

    def accept(self, job: TorchrunJob) -> None:
        """Takes note of a record that was written."""
        self._times.pop(job.metadata.uid, None)
        self._until_s.pop(job.metadata.uid, None)

    def without(self, jobs: Iterable[TorchrunJob], at_s: float) -> tuple[TorchrunJob, ...]:
        """Returns the jobs to decide on, and forgets those that are gone. What holds room always counts."""
        there = tuple(jobs)
        known = {job.metadata.uid for job in there} if self._times else set[str]()
        self._times = {uid: times for uid, times in self._times.items() if uid in known}
        self._until_s = {uid: until_s for uid, until_s in self._until_s.items() if uid in known}
        out = {uid for uid, until_s in self._until_s.items() if at_s < until_s}
        return tuple(job for job in there if job.metadata.uid not in out or not waits(job)) if out else there

    def look_again_s(self, at_s: float) -> float | None:
        """Returns seconds until the next one is decided on again; None if none is left out."""
        return min((until_s - at_s for until_s in self._until_s.values() if at_s < until_s), default=None)
