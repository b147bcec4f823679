"""Writes files in a few threads: on a network volume each costs round trips, on a local one a second core helps.

Memory is bounded by the batches that wait. Content that is only read as it is written, which a large file's should be,
costs a piece for each thread. What goes wrong in a thread is raised by the next call that finds out.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Generic, NamedTuple, TypeVar

from .core import Admitted, Member
from .unpack import Unpacker

__all__ = ["SMALL", "Batches", "File", "files_below"]

SMALL = 64 * 1024
"""Bytes up to which a file is a small one."""
_FILES, _BYTES = 64, 256 * 1024
_THREADS, _WAITING = 4, 8

T = TypeVar("T")


class Batches(Generic[T]):
    """Things that are written in threads, some of them at a time.

    Args:
        write: writes some; it ends soon after the event is set.

    Raises:
        OSError: the volume is full or cannot be written.
    """

    def __init__(self, write: Callable[[Sequence[T], Event], None]) -> None:
        self._write = write
        self._pool = ThreadPoolExecutor(_THREADS)
        self._stopped = Event()
        self._running = deque[Future[None]]()
        self._waiting: list[T] = []
        self._bytes = 0

    def put(self, one: T, size: int) -> None:
        """Add one of so many bytes. Waits while too many batches do."""
        self._waiting.append(one)
        self._bytes += size
        if len(self._waiting) == _FILES or self._bytes >= _BYTES:
            self._start()

    def settle(self) -> None:
        """Wait until everything so far is written."""
        self._start()
        while self._running:
            self._running.popleft().result()

    def close(self) -> None:
        """Wait until everything is written, and end the threads."""
        self.settle()
        self._pool.shutdown()

    def abandon(self) -> None:
        """Stop, and wait for the pieces that are being written."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _start(self) -> None:
        batch, self._waiting, self._bytes = self._waiting, [], 0
        if batch:
            self._running.append(self._pool.submit(self._write, batch, self._stopped))
        while len(self._running) > _WAITING or (self._running and self._running[0].done()):
            self._running.popleft().result()


class File(NamedTuple):
    """A file that a guard has admitted. A thread takes the pieces of its content one by one."""

    member: Member
    content: Iterable[bytes | memoryview]


def files_below(root: Path) -> Batches[File]:
    """Return batches of files for a directory, whose own directories are made already."""
    return Batches(partial(_write_files, root))


def _write_files(root: Path, files: Sequence[File], stopped: Event) -> None:
    with Unpacker(root, Admitted()) as unpacker:
        for member, content in files:
            unpacker.add(member)
            for piece in content:
                if stopped.is_set():
                    return
                unpacker.write(piece)
        unpacker.close()
