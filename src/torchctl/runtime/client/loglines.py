"""Reads a container's log as lines, and knows how to go on after a cut without losing or doubling one. Pure.

The kubelet writes each line with the time at which the container runtime saw it. A log can only be asked for from a
time on, in whole seconds (the API server cuts the rest off), and the answer begins with lines received before.
Times alone do not tell which: several lines may have the same one, and a line of stdout may stand below a later one of
stderr, because the runtime reads these two at the same time. The order of the file is what never changes. So the cursor
counts the lines that it received of the last seconds, asks again from the first of these seconds on, and skips as many.

The answer begins elsewhere if the file has been rotated meanwhile, or if less than the whole file was asked for at
first. The cursor knows by the first line. Then it goes by the times instead: it skips what is not newer than the last
line that it received.
"""

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = ["MAX_PIECE", "Cursor", "LogLine", "Splitter"]

MAX_PIECE = 2**14
"""The maximum bytes of a line; a longer one arrives in pieces. Container runtimes write pieces of this size too."""

NS = 10**9
WINDOW_S = 3
"""Seconds whose lines are counted: how late a line may be written to the file after one that is newer."""

_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line, or a piece of a long one.

    Attributes:
        at: Nanoseconds since 1970 at which the container runtime saw it.
        text: The text without the line end.
        continues: It is a further piece of the line before it.
    """

    at: int
    text: str
    continues: bool = False


class Splitter:
    """Cuts a stream of bytes into lines of bounded length. A line without a time gets that of the one before.

    Attributes:
        rest: The beginning of a line that has not ended yet.
    """

    def __init__(self, max_piece: int = MAX_PIECE) -> None:
        self._max_piece = max_piece
        self.rest = b""
        self._at = 0
        self._continues = False
        self._second = (b"", 0)

    def feed(self, data: bytes) -> list[LogLine]:
        """Returns the lines that `data` completes, and the full pieces of one that is not complete."""
        *lines, rest = (self.rest + data).split(b"\n")
        found: list[LogLine] = []
        for line in lines:
            found.append(self._line(self._cut(line, found)))
            self._continues = False
        self.rest = self._cut(rest, found)
        return found

    def end(self) -> list[LogLine]:
        """Returns what a log ends with that has no line end."""
        rest, self.rest = self.rest, b""
        return [self._line(rest)] if rest else []

    def _cut(self, line: bytes, found: list[LogLine]) -> bytes:
        """Appends the full pieces of a line to `found` and returns its last piece."""
        start = 0
        while len(line) - start > self._max_piece:
            found.append(self._line(line[start : start + self._max_piece]))
            start += self._max_piece
            self._continues = True
        return line[start:]

    def _line(self, piece: bytes) -> LogLine:
        if not self._continues:
            piece = self._timed(piece)
        return LogLine(self._at, piece.decode(errors="replace"), self._continues)

    def _timed(self, line: bytes) -> bytes:
        """Notes the time of a line and returns its text."""
        match = _TIME.match(line)
        if match is None:
            return line
        second, fraction, zone = match.groups()
        self._at = self._epoch(second, zone) * NS + int((fraction or b"").ljust(9, b"0"))
        return line[match.end() :]

    def _epoch(self, second: bytes, zone: bytes) -> int:
        # Lines of the same second follow each other.
        if self._second[0] != second + zone:
            self._second = (second + zone, _epoch(second.decode(), zone.decode()))
        return self._second[1]


@dataclass(slots=True)
class _Second:
    """The lines received of one second.

    Attributes:
        first: The fingerprint of the first of them.
        began: The number of lines that had been received before that one.
    """

    second: int
    first: int
    began: int
    count: int = 0


class Cursor:
    """Remembers how far a log has been received. `restart` before each request, `accept` each line.

    Args:
        since: The time from which the log is wanted; None for all of it.
        tail: The number of last lines that are wanted; None for all.
    """

    def __init__(self, since: datetime | None = None, tail: int | None = None) -> None:
        self._since = since
        self._tail = tail
        self._window: list[_Second] = []
        self._received = 0
        self._skip = 0
        self._first: int | None = None
        self._by_time = False
        # The newest line: its time, its fingerprint, and how many were equal to it.
        self._newest = (-1, 0, 0)

    @property
    def received(self) -> int:
        """The number of lines accepted."""
        return self._received

    @property
    def since(self) -> datetime | None:
        """The time to ask from."""
        if not self._window:
            return self._since
        begin = datetime.fromtimestamp(max(0, self._newest_second - WINDOW_S + 1), UTC)
        return begin if self._since is None else max(begin, self._since)

    @property
    def tail(self) -> int | None:
        """The number of last lines to ask for."""
        return None if self._window else self._tail

    @property
    def is_caught_up(self) -> bool:
        """True if all that was received before has been sent again since `restart`."""
        return not self._skip and self._first is None

    @property
    def _newest_second(self) -> int:
        return self._newest[0] // NS

    def restart(self) -> None:
        """Notes that the log is read again from `since` on."""
        self._skip = sum(each.count for each in self._window)
        self._first = min(self._window, key=lambda each: each.began).first if self._window else None
        self._by_time = False

    def accept(self, line: LogLine) -> bool:
        """Tells if a line is new, and remembers it if so."""
        if self._first is not None:
            if _fingerprint(line) != self._first:
                self._by_time, self._skip = True, self._newest[2]
            self._first = None
        if self._skip and self._is_known(line):
            return False
        self._remember(line)
        return True

    def _is_known(self, line: LogLine) -> bool:
        """Tells if a line that is sent again was received before; counts those."""
        at, fingerprint, _ = self._newest
        if self._by_time and line.at > at:
            self._skip = 0
            return False
        self._skip -= not self._by_time or (line.at, _fingerprint(line)) == (at, fingerprint)
        return True

    def _remember(self, line: LogLine) -> None:
        fingerprint, (at, newest, equal) = _fingerprint(line), self._newest
        if line.at >= at:
            is_equal = (line.at, fingerprint) == (at, newest)
            self._newest = (line.at, fingerprint, equal + 1 if is_equal else 1)
        self._count(line.at // NS, fingerprint)
        self._received += 1

    def _count(self, second: int, fingerprint: int) -> None:
        oldest = self._newest_second - WINDOW_S + 1
        if second < oldest:
            return  # it would not be sent again
        entry = next((each for each in self._window if each.second == second), None)
        if entry is None:
            entry = _Second(second, fingerprint, self._received)
            self._window = [each for each in self._window if each.second >= oldest] + [entry]
        entry.count += 1


def _fingerprint(line: LogLine) -> int:
    return hash((line.at, line.text))


def _epoch(second: str, zone: str) -> int:
    parsed = datetime.strptime(second, "%Y-%m-%dT%H:%M:%S")
    offset = 0 if zone == "Z" else (int(zone[1:3]) * 60 + int(zone[4:6])) * 60 * (-1 if zone[0] == "-" else 1)
    return calendar.timegm(parsed.timetuple()) - offset
