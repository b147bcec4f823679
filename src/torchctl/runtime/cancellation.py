"""Cancels tasks, and tells a requested cancellation of this task from that of something that it awaits.

Both raise the same CancelledError. If the second kind is passed on, the task ends silently although nobody asked it to,
and a task group takes that for a regular end.
"""

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Any

import anyio

__all__ = ["StrayCancellation", "cancel", "cancelled_only_if_asked", "deadline", "is_asked_to_cancel"]

AGAIN_S = 1.0
"""Seconds after which a task that has not ended is cancelled again."""


class StrayCancellation(Exception):
    """An awaited future or task was cancelled by somebody else. This is a defect of the code that awaited it."""


def is_asked_to_cancel() -> bool:
    """Tells if somebody requested the cancellation of the current task or of a cancel scope around it."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0 or anyio.get_current_task().has_pending_cancellation()


class cancelled_only_if_asked:  # noqa: N801  # it is used like a function
    """Turns a CancelledError into an error like any other, unless the task was told to cancel.

    Raises:
        StrayCancellation: The body raised CancelledError although nobody asked this task to cancel.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError) and not is_asked_to_cancel():
            raise StrayCancellation("something that it awaited was cancelled, and not by us") from error


class deadline:  # noqa: N801  # it is used like a function
    """Cancels the body after some seconds, and again each second, because a task may lose a cancellation.

    A cancel scope of anyio does the same at three times the cost, which counts for each reconcile.

    Raises:
        TimeoutError: The body was cancelled because its time was over.
    """

    __slots__ = ("_asked", "_cancelled", "_handle", "_loop", "_task", "_timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._cancelled = 0

    def __enter__(self) -> None:
        self._loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._task, self._asked = task, task.cancelling()
        self._handle = self._loop.call_later(self._timeout_s, self._expire)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if not self._cancelled:
            return
        for _ in range(self._cancelled):
            self._task.uncancel()
        if isinstance(error, asyncio.CancelledError) and self._task.cancelling() <= self._asked:
            raise TimeoutError from error

    def _expire(self) -> None:
        self._cancelled += 1
        self._task.cancel()
        self._handle = self._loop.call_later(AGAIN_S, self._expire)


async def cancel(tasks: Collection[asyncio.Task[Any]], *, again_s: float = AGAIN_S) -> None:
    """Cancels tasks and waits for their end.

    A task may lose a cancellation that meets the end of what it awaits, and would then go on for ever.

    Args:
        again_s: Seconds after which a task that has not ended is cancelled again.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=again_s)
