"""Clocks that the runtime gets as arguments. Nothing else in the runtime reads the time."""

import time
from datetime import UTC, datetime
from typing import Protocol

import anyio

__all__ = ["Clock", "SystemClock"]

_MONOTONIC: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_MONOTONIC of Linux stands still during a suspend; that of macOS, where only commands run, does not."""


class Clock(Protocol):
    """Tells the time and sleeps. Tests pass one that they move by hand."""

    def monotonic(self) -> float:
        """Seconds that never go back and go on while the machine is suspended."""
        ...

    def now(self) -> datetime:
        """The wall clock, in UTC with a time zone, for what is written into objects."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)
