"""Delays and batches status writes that change only worker counts.

Pods come and go one by one, and each of them is another number of pending, running or ready workers. Nothing is decided
by what status says of these, so they may lag. Whatever else changes is written at once, and the counts with it.
"""

from msgspec.structs import replace

from torchctl.api.job import JobStatus
from torchctl.runtime.kinds import Condition, Key

__all__ = ["StatusThrottle", "only_counts_differ"]


class StatusThrottle:
    """Remembers for each job since when its counts wait to be written. After a restart they are written a moment later.

    Args:
        period_s: Seconds by which they may lag; 0 writes each change.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._since: dict[Key, float] = {}

    def left_s(self, job: Key, written: JobStatus, status: JobStatus, now: float) -> float:
        """Returns seconds until the write of `status` is due; 0 if it is due now or there is nothing to write.

        Args:
            written: What the job has.
            now: Seconds on any monotonic scale.
        """
        if status == written or not only_counts_differ(written, status):
            self.forget(job)
            return 0.0
        left_s = self._since.setdefault(job, now) + self._period_s - now
        if left_s <= 0:
            self.forget(job)
        return max(left_s, 0.0)

    def forget(self, job: Key) -> None:
        """Forgets the job, of which nothing waits to be written any more."""
        self._since.pop(job, None)


def only_counts_differ(before: JobStatus, after: JobStatus) -> bool:
    """Whether two statuses differ in nothing but worker counts and the messages about them."""
    counted = replace(
        after,
        nodes=replace(after.nodes, ready=before.nodes.ready),
        workers=before.workers,
        workers_status=before.workers_status,
        conditions=_with_messages_of(before.conditions, after.conditions),
    )
    return counted == before


def _with_messages_of(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> tuple[Condition, ...]:
    messages = {condition.type: condition.message for condition in before}
    return tuple(replace(condition, message=messages.get(condition.type, "")) for condition in after)
