"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

__all__ = ["PERIOD_S", "until"]

T = TypeVar("T")

PERIOD_S = 0.05


async def until(look: Callable[[], Awaitable[T]], *, timeout_s: float = 30.0) -> T:
    """Looks again and again until what it sees is true, and returns that.

    Raises:
        AssertionError: It was not within `timeout_s`; the message shows what was seen last.
    """
    seen: T | None = None
    with anyio.move_on_after(timeout_s):
        while True:
            seen = await look()
            if seen:
                return seen
            await anyio.sleep(PERIOD_S)
    raise AssertionError(f"not within {timeout_s:g} s; seen last: {seen!r}")
