"""Measures the lag of the event loop with a timer that records its own delay."""

from prometheus_client import Histogram

from torchctl.runtime.clock import Clock

__all__ = ["LoopLag"]


class LoopLag:
    """Wakes every `period_s` and records how late it was woken.

    A blocked loop cannot answer a probe, which then times out; this check is for the loop that is so busy
    that it answers only now and then.
    """

    def __init__(self, clock: Clock, histogram: Histogram, *, limit_s: float = 10.0, period_s: float = 0.5) -> None:
        self._clock = clock
        self._histogram = histogram
        self._limit_s = limit_s
        self._period_s = period_s
        self._last_s = 0.0
        self._due: float | None = None

    def __repr__(self) -> str:
        return f"<LoopLag {self.seconds:.3f} s>"

    @property
    def seconds(self) -> float:
        """Returns the lag of the last wake-up or, if larger, of the one that is overdue."""
        overdue = 0.0 if self._due is None else self._clock.monotonic() - self._due
        return max(self._last_s, overdue)

    def check(self) -> str:
        """Complains about a lag above the limit. A check for `HealthChecks.add_live`."""
        lag = self.seconds
        return f"the event loop is {lag:.1f} s late" if lag >= self._limit_s else ""

    async def run(self) -> None:
        """Measures until cancelled."""
        try:
            while True:
                await self._measure()
        finally:
            self._due = None

    async def _measure(self) -> None:
        self._due = self._clock.monotonic() + self._period_s
        await self._clock.sleep(self._period_s)
        self._last_s = max(self._clock.monotonic() - self._due, 0.0)
        self._histogram.observe(self._last_s)
