"""The workqueue's async shell: it sleeps until a key is due and wakes on an add. All rules are in `core`.

An add wakes one sleeper, not all of them. Nobody sleeps while a key is due: as many are awake as there are such keys,
and one that is cancelled between its waking and its turn wakes another. One timer serves the delayed keys.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from torchctl.runtime.clock import Clock
from torchctl.runtime.workqueue.core import Item, Load, Statistics, WorkQueue
from torchctl.runtime.workqueue.ratelimit import RateLimiter

__all__ = ["Queue", "QueueClosed"]

K = TypeVar("K", bound=Hashable)


class QueueClosed(Exception):
    """The queue was closed and hands out no more keys."""


class Queue(Generic[K]):
    """A workqueue that workers can wait on. Adding never blocks."""

    def __init__(
        self,
        limiter: RateLimiter[K],
        clock: Clock,
        group: Callable[[K], Hashable] | None = None,
        on_due: Callable[[], None] = lambda: None,
    ) -> None:
        self._core: WorkQueue[K] = WorkQueue(limiter, group, on_due)
        self._clock = clock
        self._sleepers: dict[asyncio.Future[None], None] = {}  # in the order in which they fell asleep
        self._coming = 0  # woken, and not yet at work
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return repr(self._core)

    def add(self, key: K, *, priority: int = 0, delay_s: float = 0.0) -> None:
        """Makes `key` due, now or after a delay."""
        now = self._clock.monotonic()
        self._core.add_after(key, delay_s, now, priority=priority)
        self._rouse(now)

    def add_after(self, key: K, delay_s: float) -> None:
        self.add(key, delay_s=delay_s)

    def add_rate_limited(self, key: K) -> float:
        """Adds `key` after the limiter's delay and returns that delay in seconds."""
        now = self._clock.monotonic()
        delay_s = self._core.add_rate_limited(key, now)
        self._rouse(now)
        return delay_s

    def absorb(self, key: K) -> None:
        """Forgets that `key` was added since it was handed out: its processing begins only now."""
        self._core.absorb(key, self._clock.monotonic())

    def forget(self, key: K) -> None:
        self._core.forget(key)

    def done(self, key: K) -> float:
        """Ends the processing of `key` and returns how long it took, in seconds."""
        now = self._clock.monotonic()
        duration_s = self._core.done(key, now)
        self._rouse(now)
        return duration_s

    async def get(self) -> Item[K]:
        """Waits for a key that is due. The caller must call `done` for it.

        Always lets other tasks run first, so that reconciles that never wait cannot block the event loop.

        Raises:
            QueueClosed: The queue is closed.
        """
        await asyncio.sleep(0)
        while not self._closed:
            now = self._clock.monotonic()
            item = self._core.get(now)
            if item is not None:
                self._rouse(now)
                return item
            await self._sleep(now)
        raise QueueClosed

    def close(self) -> None:
        """Makes `get` raise `QueueClosed`. Keys that wait stay in the queue."""
        self._closed = True
        while self._sleepers:
            self._wake()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def load(self) -> Load:
        return self._core.load(self._clock.monotonic())

    def statistics(self) -> Statistics:
        return self._core.statistics(self._clock.monotonic())

    async def _sleep(self, now: float) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers[sleeper] = None
        self._rouse(now)
        try:
            await sleeper
        except asyncio.CancelledError:
            if sleeper in self._sleepers:
                del self._sleepers[sleeper]
            else:
                self._coming -= 1
                self._rouse(self._clock.monotonic())  # it was woken for a key that it will not take
            raise
        self._coming -= 1

    def _rouse(self, now: float) -> None:
        """Wakes a sleeper for each key that is due, and makes sure that one is woken when the next key is."""
        if not self._sleepers:
            return
        for _ in range(self._core.ready(now) - self._coming):
            self._wake()
        wakeup = self._core.next_wakeup()
        if wakeup is not None and (self._alarm is None or wakeup < self._alarm_at):
            self._set_alarm(wakeup, now)

    def _wake(self) -> None:
        if self._sleepers:
            sleeper = next(iter(self._sleepers))
            del self._sleepers[sleeper]
            self._coming += 1
            if not sleeper.done():  # else its task is being cancelled, and will say so
                sleeper.set_result(None)

    def _set_alarm(self, at: float, now: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = asyncio.get_running_loop().call_later(max(at - now, 0.0), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._rouse(self._clock.monotonic())
