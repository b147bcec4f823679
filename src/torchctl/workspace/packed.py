"""A workspace as one file at the root of its claim, for workers that take a copy and never look at files there.

    <content> <content> ... <manifest> <tail: magic, size of the manifest>

Each content is there once, where the manifest names it first, so the manifest says where each begins. Twenty thousand
files are one sequential write for the sync pod and one sequential read for each worker: on a network volume each file
would cost round trips. Whoever reads it checks the manifest against the marker, and each content against the manifest.
"""

import hashlib
import os
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import NamedTuple

from .batches import SMALL, Batches
from .core import PACK, Limits, Member
from .errors import Unreachable
from .flush import start_flush
from .manifest import Entry, checked, entries

__all__ = ["Layout", "PackedTree", "Packing", "opened"]

_TAIL = struct.Struct(">8sQ")
_MAGIC = b"trchwsp1"
_MAX_MANIFEST = 64 * 2**20
_PIECE = 256 * 1024
"""Bytes that are read, hashed and written in turn; they stay in a core's cache meanwhile."""
_FLUSH = 8 * 2**20
"""Bytes after which their way to the disk begins: the flush of the volume later finds less to do."""
_NOTICED_S, _MOSTLY = 0.1, 4.0
"""A thread waits more than it works if that takes four times as long as its own work, and a tenth of a second."""
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Layout:
    """Where the content of each file of a tree begins in its pack. Ask for the files in the manifest's order first."""

    def __init__(self) -> None:
        self.size = 0
        self._places: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"<Layout contents={len(self._places)} size={self.size}>"

    def place(self, entry: Entry) -> int:
        """Return where the content of a file begins; a content that was not named before follows the last one."""
        found = self._places.get(entry.sha256)
        if found is None:
            found = self._places[entry.sha256] = self.size
            self.size += entry.member.size
        return found


class _Content(NamedTuple):
    at: int
    pieces: Iterable[bytes | memoryview]


class Packing:
    """Writes the pack of a tree: what arrives one after another, and what is elsewhere in a few threads.

    Args:
        path: of the pack, which is not there yet.
        layout: has placed all files of the tree.

    Raises:
        OSError: the volume is full or cannot be written.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self._layout = layout
        self._file = os.open(path, _NEW, 0o644)
        os.fchmod(self._file, 0o644)  # whatever the umask is: workers may run as another user
        self._batches = Batches(self._copy)
        self._there = set[bytes]()
        self._buffer = bytearray()
        self._at = self._unflushed = 0
        self._pace = _Pace()

    def write(self, entry: Entry, at: int, part: memoryview) -> None:
        """Take a part of a file's content, which begins at byte `at` of it."""
        if not at:
            self._there.add(entry.sha256)
        place = self._layout.place(entry) + at
        if place != self._at + len(self._buffer):
            self.settle()
            self._at = place
        if len(part) >= _PIECE // 2:
            self.settle()
            self._write(part)
            return
        self._buffer += part
        if len(self._buffer) >= _PIECE:
            self.settle()

    def put(self, entry: Entry, content: Iterable[bytes | memoryview]) -> None:
        """Take a file's content from elsewhere, unless the pack has it already.

        That of a small file is taken at once: threads with many of them wait for each other. Unless each has to be
        waited for, on a network volume: then several threads do.
        """
        if not entry.member.size or entry.sha256 in self._there:
            return
        if entry.member.size <= SMALL and not self._pace.waits:
            with self._pace:
                self._take(entry, content)
            return
        self._there.add(entry.sha256)
        self._batches.put(_Content(self._layout.place(entry), content), entry.member.size)

    def _take(self, entry: Entry, content: Iterable[bytes | memoryview]) -> None:
        at = 0
        for piece in content:
            self.write(entry, at, memoryview(piece))
            at += len(piece)

    def add(self, member: Member) -> None:
        """Take a directory or a link: the manifest has it."""

    def take(self, member: Member, place: Callable[[str], bool]) -> bool:
        """Take no file that is elsewhere on the claim."""
        return False

    def settle(self) -> None:
        """Write what was taken so far."""
        self._write(self._buffer)
        self._buffer.clear()

    def _write(self, data: bytearray | memoryview) -> None:
        self._at = _write(self._file, data, self._at)
        self._unflushed += len(data)
        if self._unflushed >= _FLUSH:
            self._unflushed = 0
            start_flush(self._file)

    def close(self, manifest: Path) -> None:
        """Add the manifest: the pack is complete."""
        self.settle()
        self._batches.close()
        at = self._layout.size
        with manifest.open("rb", buffering=0) as file:
            while chunk := file.read(_PIECE):
                at = _write(self._file, chunk, at)
        _write(self._file, _TAIL.pack(_MAGIC, at - self._layout.size), at)
        self._close()

    def abandon(self) -> None:
        """Stop, and wait for the pieces that are being written."""
        self._batches.abandon()
        self._close()

    def _close(self) -> None:
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _copy(self, contents: Sequence[_Content], stopped: Event) -> None:
        for begin, pieces in contents:
            at = begin
            for piece in pieces:
                if stopped.is_set():
                    return
                at = _write(self._file, piece, at)
            if at - begin > SMALL:
                start_flush(self._file, begin, at - begin)


class _Pace:
    """Measures, in blocks of `with`, whether a thread mostly waits. It says so once for all.

    Attributes:
        waits: it does.
    """

    def __init__(self) -> None:
        self.waits = False
        self._passed = self._worked = 0.0

    def __enter__(self) -> None:
        self._passed -= time.monotonic()
        self._worked -= time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._passed += time.monotonic()
        self._worked += time.thread_time()
        self.waits = self._passed > max(_NOTICED_S, _MOSTLY * self._worked)


class PackedTree:
    """The pack of a claim, opened for reading. Several threads may read at once.

    Raises:
        Unreachable: it is cut off or damaged, or cannot be read.
    """

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        found = os.fstat(descriptor)
        self.seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        """What tells it from another pack in its place."""
        self._mtime = int(found.st_mtime)
        self._begin, self._end = self._bounds(found)

    def __enter__(self) -> "PackedTree":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._file)

    def entries(self, limits: Limits) -> Iterator[tuple[Entry, int]]:
        """Yield the entries of the tree in order, each with the place of its content. All are as old as the pack.

        Raises:
            Refused: it has something that a workspace must not contain.
        """
        layout = Layout()
        for entry in checked(entries(self._pieces(self._begin, self._end), limits), limits):
            made = entry._replace(member=entry.member._replace(mtime=self._mtime))
            yield made, layout.place(entry) if entry.member.size else 0

    def digest(self) -> str:
        """Return the digest of the tree, which is that of its manifest."""
        found = hashlib.sha256()
        for piece in self._pieces(self._begin, self._end):
            found.update(piece)
        return f"sha256:{found.hexdigest()}"

    def content(self, entry: Entry, place: int) -> Iterator[bytes]:
        """Yield the content of a file; the last piece comes before it is checked.

        Raises:
            Unreachable: it does not have the SHA-256 of the manifest.
        """
        found = hashlib.sha256()
        for piece in self.pieces(place, entry.member.size):
            found.update(piece)
            yield piece
        if found.digest() != entry.sha256:
            raise _damaged()

    def pieces(self, place: int, size: int) -> Iterator[bytes]:
        """Yield so many bytes of content from a place on, unchecked."""
        return self._pieces(place, min(place + size, self._begin), short=place + size > self._begin)

    def _pieces(self, at: int, end: int, *, short: bool = False) -> Iterator[bytes]:
        try:
            while at < end and (piece := os.pread(self._file, min(_PIECE, end - at), at)):
                at += len(piece)
                yield piece
        except OSError as error:
            raise Unreachable(f"{PACK} cannot be read: {error.strerror}") from None
        if short or at < end:
            raise _damaged()

    def _bounds(self, found: os.stat_result) -> tuple[int, int]:
        """Return where the manifest begins and ends."""
        if not stat.S_ISREG(found.st_mode) or found.st_size < _TAIL.size:
            raise _damaged()
        end = found.st_size - _TAIL.size
        magic, size = _TAIL.unpack(b"".join(self._pieces(end, found.st_size)))
        if magic != _MAGIC or size > min(_MAX_MANIFEST, end):
            raise _damaged()
        return end - size, end


def opened(root: Path) -> PackedTree | None:
    """Open the pack of a claim; None if its workspace is not packed.

    Raises:
        Unreachable: it cannot be read, or is none.
    """
    try:
        descriptor = os.open(root / PACK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreachable(f"{PACK} cannot be read: {error.strerror}") from None
    try:
        return PackedTree(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def _write(file: int, data: bytes | bytearray | memoryview, at: int) -> int:
    """Write all of it, and return where it ends."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written
    return at


def _damaged() -> Unreachable:
    return Unreachable(
        f"{PACK} on the claim is not what the sync pod wrote",
        next_step="Something wrote to the workspace after it was synced, or the volume lost data: sync again",
    )
