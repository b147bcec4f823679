"""The interface of a policy, and the recorded starts that its state is derived from."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from torchctl.controllers.coordinator.values import Start, Turn

__all__ = ["Candidate", "History", "Policy"]


class Candidate(NamedTuple):
    """A queue with a gang that may be let in now.

    Args:
        waits_since_s: Since when the queue has had a gang that waits.
        priority: The priority of its first gang, and `first_since_s` since when that gang waits.
    """

    queue: str
    weight: int
    waits_since_s: float
    priority: int
    first_since_s: float


class Policy(Protocol):
    """Says which queue is next. An object serves one decision; what has to last is in the turns that are recorded."""

    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        """Returns the queue whose turn it is, of at least one. Nothing changes by asking."""
        ...

    def charge(self, chosen: Candidate, candidates: Sequence[Candidate]) -> Turn:
        """Counts a start of a queue and returns the turn to record with it."""
        ...


class History:
    """The recorded starts, by queue and by time."""

    def __init__(self, starts: Iterable[Start]) -> None:
        self._starts = sorted(starts, key=attrgetter("at_s", "turn"))
        self._last: dict[str, Start] = {}
        for start in self._starts:
            known = self._last.get(start.queue)
            if known is None or start.turn >= known.turn:
                self._last[start.queue] = start
        self._clocks: list[int] = []
        for start in self._starts:
            self._clocks.append(max(start.turn.clock, self._clocks[-1] if self._clocks else 0))

    @property
    def clock(self) -> int:
        """The highest clock that is recorded; 0 if nothing is."""
        return self._clocks[-1] if self._clocks else 0

    def last(self, queue: str) -> Start | None:
        """Returns the last start of a queue."""
        return self._last.get(queue)

    def clock_at(self, at_s: float) -> int:
        """Returns how far the clock was at a time."""
        place = bisect_right(self._starts, at_s, key=attrgetter("at_s"))
        return self._clocks[place - 1] if place else 0
