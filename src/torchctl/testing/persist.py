"""Writes of a simulated component: retried like those of the real one, with limited concurrency."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from torchctl.runtime.client.errors import Conflict, Timeout, TooManyRequests, Unavailable

__all__ = ["Persistence"]

R = TypeVar("R")

LONGEST_REST_S = 1.0


class Persistence:
    """Repeats a write until the API server accepts it or refuses it for good.

    The write must be idempotent.
    """

    def __init__(self, at_once: int) -> None:
        self._limit = anyio.CapacityLimiter(at_once)

    async def __call__(self, write: Callable[[], Awaitable[R]]) -> R:
        """Performs a write. Raises ApiError if the server refuses it."""
        rest_s = 0.02
        while True:
            try:
                async with self._limit:
                    return await write()
            except (Conflict, TooManyRequests, Unavailable, Timeout):
                await anyio.sleep(rest_s)
                rest_s = min(rest_s * 2, LONGEST_REST_S)
