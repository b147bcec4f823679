"""What happens when: callbacks in the order of their times, one after the other."""

import heapq
import itertools
from collections.abc import Callable

import anyio

__all__ = ["Agenda"]

Act = Callable[[], None]


class Agenda:
    """Calls back at given times. Callbacks of one time are called in the order in which they were asked for."""

    def __init__(self) -> None:
        self._acts: list[tuple[float, int, Act]] = []
        self._numbers = itertools.count()
        self._sooner = anyio.Event()

    def __repr__(self) -> str:
        return f"<Agenda of {len(self._acts)}>"

    def after(self, seconds: float, act: Act) -> None:
        """Calls `act` after so many seconds."""
        due = anyio.current_time() + max(0.0, seconds)
        heapq.heappush(self._acts, (due, next(self._numbers), act))
        if self._acts[0][2] is act:
            self._sooner.set()

    async def run(self) -> None:
        """Works until cancelled; an error of a callback ends it."""
        while True:
            self._sooner = anyio.Event()
            while self._acts and self._acts[0][0] <= anyio.current_time():
                heapq.heappop(self._acts)[2]()
            left_s = self._acts[0][0] - anyio.current_time() if self._acts else None
            with anyio.move_on_after(left_s):
                await self._sooner.wait()
