"""Writes of a scripted part of the cluster: as stubborn as the real one, and not too many at once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from torchctl.runtime.client.errors import Conflict, Timeout, TooManyRequests, Unavailable

__all__ = ["Persistence"]

R = TypeVar("R")

LONGEST_REST_S = 1.0


class Persistence:
    """Repeats a write until the API server took it or refused it for good.

    What is written this way has to be idempotent.
    """

    def __init__(self, at_once: int) -> None:
        self._limit = anyio.CapacityLimiter(at_once)

    async def __call__(self, write: Callable[[], Awaitable[R]]) -> R:
        """Raises ApiError where the server refused."""
        rest_s = 0.02
        while True:
            try:
                async with self._limit:
                    return await write()
            except (Conflict, TooManyRequests, Unavailable, Timeout):
                await anyio.sleep(rest_s)
                rest_s = min(rest_s * 2, LONGEST_REST_S)
