"""Writes files in a few threads: on a network volume each costs round trips, on a local one a second core helps.

Memory is bounded by the batches that wait. Content that is only read as it is written, which a large file's should be,
costs a piece for each thread. What goes wrong in a thread is raised by the next call that finds out.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TypeAlias

from .core import Admitted, Member
from .unpack import Unpacker

__all__ = ["SMALL", "Batches"]

SMALL = 64 * 1024
"""Bytes up to which a file is a small one."""
_FILES, _BYTES = 64, 256 * 1024
_THREADS, _WAITING = 4, 8

_File: TypeAlias = tuple[Member, Iterable[bytes | memoryview]]


class Batches:
    """Files for the directory `root`, whose directories are made already.

    Raises:
        OSError: the volume is full or cannot be written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pool = ThreadPoolExecutor(_THREADS)
        self._stopped = Event()
        self._running = deque[Future[None]]()
        self._files: list[_File] = []
        self._bytes = 0

    def put(self, member: Member, content: Iterable[bytes | memoryview]) -> None:
        """Add a file that a guard has admitted. Waits while too many batches do.

        Args:
            content: its pieces; a thread takes them one by one.
        """
        self._files.append((member, content))
        self._bytes += member.size
        if len(self._files) == _FILES or self._bytes >= _BYTES:
            self._start()

    def settle(self) -> None:
        """Wait until every file so far is written."""
        self._start()
        while self._running:
            self._running.popleft().result()

    def close(self) -> None:
        """Wait until every file is written, and end the threads."""
        self.settle()
        self._pool.shutdown()

    def abandon(self) -> None:
        """Stop, and wait for the pieces that are being written."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _start(self) -> None:
        files, self._files, self._bytes = self._files, [], 0
        if files:
            self._running.append(self._pool.submit(_write, self._root, files, self._stopped))
        while len(self._running) > _WAITING or (self._running and self._running[0].done()):
            self._running.popleft().result()


def _write(root: Path, files: Sequence[_File], stopped: Event) -> None:
    with Unpacker(root, Admitted()) as unpacker:
        for member, content in files:
            unpacker.add(member)
            for piece in content:
                if stopped.is_set():
                    return
                unpacker.write(piece)
        unpacker.close()
