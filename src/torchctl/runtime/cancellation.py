"""Cancels tasks, and tells a requested cancellation of this task from that of something that it awaits.

Both raise the same CancelledError. If the second kind is passed on, the task ends silently although nobody asked it to,
and a task group takes that for a regular end.
"""

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Any

import anyio

__all__ = ["StrayCancellation", "cancel", "cancelled_only_if_asked", "is_asked_to_cancel"]


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


async def cancel(tasks: Collection[asyncio.Task[Any]], *, again_s: float = 1.0) -> None:
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
