"""Lets other tasks run during long work that never waits."""

import anyio.lowlevel

__all__ = ["Pace"]


class Pace:
    """Yields to the event loop once in every `stride` steps."""

    def __init__(self, stride: int = 64) -> None:
        self._stride = stride
        self._steps = 0

    async def step(self) -> None:
        self._steps += 1
        if self._steps >= self._stride:
            self._steps = 0
            await anyio.lowlevel.checkpoint()
