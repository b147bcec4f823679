"""Tells a cancellation that was asked for from one that merely came by.

Whoever awaits a future or a task that somebody else cancels gets the same CancelledError as a task that is itself told
to stop. Passed on, it ends the task in silence: nothing asked for that, and a task group takes it for a regular end.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

__all__ = ["StrayCancellation", "cancelled_only_if_asked", "is_asked_to_cancel"]


class StrayCancellation(Exception):
    """Something that was awaited was cancelled by somebody else. A defect of the code that awaited it."""


def is_asked_to_cancel() -> bool:
    """Whether the current task, or a cancel scope around it, was told to cancel."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0 or anyio.get_current_task().has_pending_cancellation()


@contextmanager
def cancelled_only_if_asked() -> Iterator[None]:
    """Turns a CancelledError into an error like any other, unless the task was told to cancel.

    Raises:
        StrayCancellation: The body raised CancelledError although nobody asked this task to cancel.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if is_asked_to_cancel():
            raise
        raise StrayCancellation("something that it awaited was cancelled, and not by us") from error
