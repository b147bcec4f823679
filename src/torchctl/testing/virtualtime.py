"""An event loop whose time is virtual: it jumps to the next timer instead of waiting for it.

Code that sleeps, times out and retries runs in milliseconds and deterministically. It must do no real I/O.

    virtualtime.run(main)
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import anyio

__all__ = ["Deadlock", "VirtualClock", "VirtualLoop", "run"]

T = TypeVar("T")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Deadlock(Exception):
    """Every task waits for another one, and no timer is set."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return []  # there is work to do, and no I/O that it could wait for
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time, which begins at 0."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # args are not matched with func
        """Runs the function at once and here: what is for a thread takes no time, and the order stays the same."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class VirtualClock:
    """A `Clock` that follows the running virtual loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Runs `main` to its end in virtual time and returns its result.

    Raises:
        Deadlock: It would never end.
    """
    return anyio.run(main, backend_options={"loop_factory": VirtualLoop})
