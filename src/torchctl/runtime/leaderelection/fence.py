"""Refuses writes once leadership has expired, even if the process has not noticed that yet.

A process that was stopped (SIGSTOP, a suspended machine, a blocked event loop) wakes up with unfinished reconciles and
timers that have not fired yet. So the fence does not rely on a notification: each write checks it right before it is
sent, and the check compares a deadline with the boot clock, which runs on while the process does not. No watchdog
thread is needed, because a blocked event loop cannot send anything either. The time between the check and the socket
remains: writes carry a uid or a resourceVersion for that, and the lease outlives the deadline by
`lease_duration_s - renew_deadline_s`.
"""

import math

from torchctl.runtime.client.errors import NotLeader
from torchctl.runtime.clock import Clock, SystemClock

__all__ = ["Fence"]


class Fence:
    """Allows writes from `arm` until its deadline. Give it to the client that controllers write with."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -math.inf

    def __repr__(self) -> str:
        return f"<Fence {'open' if self.remaining_s > 0 else 'shut'}>"

    @classmethod
    def open(cls) -> "Fence":
        """Returns a fence that never refuses, for a process without leader election."""
        fence = cls(SystemClock())
        fence.arm(math.inf)
        return fence

    @property
    def remaining_s(self) -> float:
        """Returns the seconds for which writes may still begin; zero or negative if none may."""
        return self._until - self._clock.monotonic()

    def arm(self, until: float) -> None:
        """Allows writes until the clock's monotonic time reaches `until`."""
        self._until = until

    def disarm(self) -> None:
        """Refuses writes from now on."""
        self._until = -math.inf

    def check(self) -> None:
        """Raises if a write must not be sent. Call it right before sending.

        Raises:
            NotLeader: Leadership is over, or has not begun.
        """
        if self.remaining_s <= 0:
            raise NotLeader("this process does not lead: the write was not sent")
