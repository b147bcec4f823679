"""The workqueue's async shell: it sleeps until a key is due and wakes on an add. All rules are in `core`."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

from torchctl.runtime.clock import Clock
from torchctl.runtime.workqueue.core import Item, Statistics, WorkQueue
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
        self._changed = anyio.Event()
        self._closed = False

    def __repr__(self) -> str:
        return repr(self._core)

    def add(self, key: K, *, priority: int = 0, delay_s: float = 0.0) -> None:
        """Makes `key` due, now or after a delay."""
        self._core.add_after(key, delay_s, self._clock.monotonic(), priority=priority)
        self._wake()

    def add_after(self, key: K, delay_s: float) -> None:
        self._core.add_after(key, delay_s, self._clock.monotonic())
        self._wake()

    def add_rate_limited(self, key: K) -> float:
        """Adds `key` after the limiter's delay and returns that delay in seconds."""
        delay_s = self._core.add_rate_limited(key, self._clock.monotonic())
        self._wake()
        return delay_s

    def forget(self, key: K) -> None:
        self._core.forget(key)

    def done(self, key: K) -> float:
        """Ends the processing of `key` and returns how long it took, in seconds."""
        duration_s = self._core.done(key, self._clock.monotonic())
        self._wake()
        return duration_s

    async def get(self) -> Item[K]:
        """Waits for a key that is due. The caller must call `done` for it.

        Always lets other tasks run first, so that reconciles that never wait cannot block the event loop.

        Raises:
            QueueClosed: The queue is closed.
        """
        await anyio.lowlevel.checkpoint()
        while not self._closed:
            now = self._clock.monotonic()
            item = self._core.get(now)
            if item is not None:
                return item
            wakeup = self._core.next_wakeup()
            with anyio.move_on_after(None if wakeup is None else wakeup - now):
                await self._changed.wait()
        raise QueueClosed

    def close(self) -> None:
        """Makes `get` raise `QueueClosed`. Keys that wait stay in the queue."""
        self._closed = True
        self._wake()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def statistics(self) -> Statistics:
        return self._core.statistics(self._clock.monotonic())

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
