"""Runs work that is written as a generator, so that deadlines and signals are handled between its steps."""

import math
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.lowlevel

from .errors import Unreachable

__all__ = ["deadline", "drive"]

T = TypeVar("T")
_EVERY = 16


async def drive(work: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its value; it is closed when the caller is cancelled."""
    count = 0
    try:
        while True:
            try:
                next(work)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # Generator's third parameter
            count += 1
            if count % _EVERY == 0:
                await anyio.lowlevel.checkpoint()
    finally:
        work.close()


@asynccontextmanager
async def deadline(seconds: float, waiting_for: str) -> AsyncIterator[None]:
    """Limit the time of a block.

    Raises:
        Unreachable: the block took longer; the message contains `waiting_for`.
    """
    try:
        with anyio.fail_after(seconds if math.isfinite(seconds) else None):
            yield
    except TimeoutError:
        raise Unreachable(
            f"{waiting_for} took more than {seconds:g} s", next_step="Raise timeoutSeconds if it needs more"
        ) from None
