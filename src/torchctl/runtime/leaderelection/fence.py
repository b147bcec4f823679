"""Refuses writes once leadership has run out, whatever else the process believes at that moment.

A process that was stopped (SIGSTOP, a suspended machine, a blocked event loop) wakes up with reconciles in
the middle of their work and timers that have not fired yet. So nobody has to be told in time that leadership is over:
each write asks, right before it is sent, and the answer is a comparison of a deadline with the boot clock, which went
on while the process did not. No thread watches over it, for while the event loop is blocked nothing can be sent
either. What remains is the moment between the question and the socket; the writes themselves carry a uid or a
resourceVersion for that, and the lease outlives the deadline by `lease_duration_s - renew_deadline_s`.
"""

import math

from torchctl.runtime.client.errors import NotLeader
from torchctl.runtime.clock import Clock, SystemClock

__all__ = ["Fence"]


class Fence:
    """Shut until it is armed, and again once its time is over. Give it to the client that controllers write with."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -math.inf

    def __repr__(self) -> str:
        return f"<Fence {'open' if self.remaining_s > 0 else 'shut'}>"

    @classmethod
    def open(cls) -> "Fence":
        """A fence that never refuses, for a process without leader election."""
        fence = cls(SystemClock())
        fence.arm(math.inf)
        return fence

    @property
    def remaining_s(self) -> float:
        """Seconds for which writes may still begin; not positive when none may."""
        return self._until - self._clock.monotonic()

    def arm(self, until: float) -> None:
        """Allows writes until the clock's monotonic time reaches `until`."""
        self._until = until

    def disarm(self) -> None:
        """Refuses writes from now on."""
        self._until = -math.inf

    def check(self) -> None:
        """Call right before sending a write.

        Raises:
            NotLeader: Leadership is over, or has not begun.
        """
        if self.remaining_s <= 0:
            raise NotLeader("this process does not lead: the write was not sent")
