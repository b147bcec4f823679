"""Merges the lines of many workers into one stream, in bounded memory. Pure; times are seconds of a monotonic clock.

Lines are given out by the time at which they were written, the oldest first. That needs a line of each worker at hand,
and a worker may write nothing for hours. So a worker without a line is waited for only for `patience_s`: a log that is
read from its beginning comes out in order, and a line that is written now comes out at once or nearly so.

Each worker has room for a few lines only. One whose room is full is not read from until some were given out, which
slows its connection, not this program.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from torchctl.runtime.client.loglines import LogLine

__all__ = ["Merge", "Merged"]

MAX_TOTAL = 8 * 2**20
"""The characters that are held of all workers together, besides what each was given last."""

OVERHEAD = 100
"""The characters that a line is counted for besides its own."""


class Merged(NamedTuple):
    """A line and the worker that wrote it."""

    source: int
    line: LogLine


@dataclass(slots=True)
class _Source:
    lines: deque[LogLine] = field(default_factory=deque)
    size: int = 0
    idle_since: float = 0.0
    is_closed: bool = False


class Merge:
    """Holds the lines of the workers until it is their turn.

    Args:
        patience_s: Seconds for which a worker without a line holds up the others.
        max_total: The characters that are held of all workers together.
    """

    def __init__(self, patience_s: float, *, max_total: int = MAX_TOTAL) -> None:
        self._patience_s = patience_s
        self._max_total = max_total
        self._sources: dict[int, _Source] = {}
        self._heads: list[tuple[int, int]] = []
        self._idle: set[int] = set()

    def __repr__(self) -> str:
        return f"<Merge of {len(self._sources)} held={self.held}>"

    @property
    def held(self) -> int:
        """The characters that are held now."""
        return sum(source.size for source in self._sources.values())

    @property
    def is_empty(self) -> bool:
        """True if no worker is open and no line is held."""
        return not self._sources

    def open(self, source: int, now: float) -> None:
        """Adds a worker, which has no lines yet."""
        self._sources[source] = _Source(idle_since=now)
        self._idle.add(source)

    def close(self, source: int) -> None:
        """Notes that a worker writes nothing more. Its lines are still given out."""
        self._sources[source].is_closed = True
        self._idle.discard(source)
        self._forget(source)

    def feed(self, source: int, lines: Sequence[LogLine]) -> None:
        """Takes lines of a worker, in the order in which it wrote them. Ask `has_room` first."""
        if not lines:
            return
        held = self._sources[source]
        if not held.lines:
            self._idle.discard(source)
            heappush(self._heads, (lines[0].at, source))
        held.lines.extend(lines)
        held.size += sum(len(line.text) + OVERHEAD for line in lines)

    def has_room(self, source: int) -> bool:
        """Tells if more lines of a worker may be read."""
        return self._sources[source].size < self._max_total // max(1, len(self._sources))

    def take(self, now: float, limit: int = 1000) -> list[Merged]:
        """Returns the lines whose turn it is, at most `limit`."""
        taken: list[Merged] = []
        is_settled = all(self._left_s(source, now) <= 0 for source in self._idle)
        while is_settled and self._heads and len(taken) < limit:
            _, source = heappop(self._heads)
            taken.append(Merged(source, self._pop(source, now)))
            # A worker that has just given its last line is waited for.
            is_settled = source not in self._idle or self._patience_s <= 0
        return taken

    def wait_s(self, now: float) -> float | None:
        """Returns the seconds until `take` gives out more by itself; None if that needs more lines."""
        if not self._heads:
            return None
        return max((self._left_s(source, now) for source in self._idle), default=0.0)

    def _left_s(self, source: int, now: float) -> float:
        return self._sources[source].idle_since + self._patience_s - now

    def _pop(self, source: int, now: float) -> LogLine:
        held = self._sources[source]
        line = held.lines.popleft()
        held.size -= len(line.text) + OVERHEAD
        if held.lines:
            heappush(self._heads, (held.lines[0].at, source))
        elif not held.is_closed:
            held.idle_since = now
            self._idle.add(source)
        self._forget(source)
        return line

    def _forget(self, source: int) -> None:
        held = self._sources[source]
        if held.is_closed and not held.lines:
            del self._sources[source]
