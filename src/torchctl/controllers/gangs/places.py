"""Keeps the places of Workloads in Kueue's queues: who asked for one, what is known, and for whom it has changed.

Kueue orders what waits by ClusterQueue, and whoever leaves moves all behind. So only a place among the first few is
exact; of one further back a round number says how many are before it at least. A job is then written a few times on its
way to the front, however many leave. Pure; `job/place_reader.py` reads what is learned here.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchctl.api.kueue import KueuePendingWorkload, KueueWorkload
from torchctl.runtime.kinds import Key

__all__ = ["EXACT", "LIMIT", "Places"]

EXACT = 10
"""Places up to this one are told exactly."""
LIMIT = 1000
"""The number of Workloads that Kueue lists by default (pkg/constants, DefaultPendingWorkloadsLimit)."""
_ROUND = tuple(step * 10**power for power in range(1, 7) for step in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class _Front:
    """A LocalQueue as it was read last.

    Args:
        before: Of each Workload that was listed, how many of its ClusterQueue are before it.
        rest: How many are before one that was not listed, at least; None if all that wait were.
    """

    before: dict[str, int] = field(default_factory=dict)
    rest: int | None = None

    def words(self, workload: str) -> str:
        before = self.before.get(workload, self.rest)
        if before is None:
            return ""
        if before < EXACT:
            return f"place {before + 1} of its ClusterQueue"
        return f"{_ROUND[bisect_right(_ROUND, before) - 1]} or more before it in its ClusterQueue"


class Places:
    """Knows which jobs wait in which LocalQueue, and their places. Losing it does no harm: it is told and read anew."""

    def __init__(self) -> None:
        self._queue_of: dict[Key, Key] = {}
        self._waiting: dict[Key, dict[Key, str]] = {}
        self._fronts: dict[Key, _Front] = {}

    @property
    def queues(self) -> tuple[Key, ...]:
        """The LocalQueues in which jobs wait."""
        return tuple(self._waiting)

    def words(self, job: Key, workload: KueueWorkload | None) -> str:
        """The place of a job's Workload, for a sentence; empty if it is not known. Notes that the job waits for it.

        Args:
            workload: The Workload that waits. If there is none, or it is inactive, the job is forgotten.
        """
        if workload is None or not (workload.spec.active and workload.spec.queue_name):
            self.forget(job)
            return ""
        queue, name = Key(job.namespace, workload.spec.queue_name), workload.metadata.name
        if self._queue_of.get(job, queue) != queue:
            self.forget(job)
        self._queue_of[job] = queue
        self._waiting.setdefault(queue, {})[job] = name
        return self._fronts.get(queue, _Front()).words(name)

    def forget(self, job: Key) -> None:
        """Forgets a job that waits no more, and its queue if it was the last there."""
        queue = self._queue_of.pop(job, None)
        if queue is None:
            return
        del self._waiting[queue][job]
        if not self._waiting[queue]:
            del self._waiting[queue]
            self._fronts.pop(queue, None)

    def learn(self, queue: Key, listed: Sequence[KueuePendingWorkload]) -> list[Key]:
        """Takes a LocalQueue's list, and returns the jobs of which something else is to be said than before."""
        before = {one.metadata.name: one.position_in_cluster_queue for one in listed}
        rest = max(before.values()) + 1 if len(listed) >= LIMIT else None
        old, new = self._fronts.get(queue, _Front()), _Front(before, rest)
        waiting = self._waiting.get(queue, {})
        if waiting:
            self._fronts[queue] = new
        return [job for job, workload in waiting.items() if old.words(workload) != new.words(workload)]

    def lose(self) -> None:
        """Forgets all places, because Kueue answers no more. A job loses its own with the next pass that comes anyway:
        a pass for each only to say less would not be worth it."""
        self._fronts.clear()
