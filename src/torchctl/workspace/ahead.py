"""Downloads several files at once, and hands them out in the order in which they were asked for.

What has arrived early waits on disk, so one slow request does not hold the others up at once. Connections, files and
bytes that wait are bounded.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

from .core import Member

__all__ = ["AT_ONCE", "Ahead"]

AT_ONCE = 8
"""Requests at once: most of the time of a small one is the way there and back."""
_FILES, _BYTES = 64, 64 * 2**20
"""The most that is begun and not yet taken; a file that is larger is alone."""


class Ahead:
    """Downloads into `scratch`. Whoever uses it takes each file, removes it, and closes this at the end."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._running = deque[tuple[Member, Path, asyncio.Task[None]]]()
        self._bytes = self._number = 0

    def __repr__(self) -> str:
        return f"<Ahead files={len(self._running)} bytes={self._bytes}>"

    def __len__(self) -> int:
        """The number of files that are begun and not yet taken."""
        return len(self._running)

    def has_room(self, member: Member) -> bool:
        """Tell if a file may be begun; the first always may."""
        return not self._running or (len(self._running) < _FILES and self._bytes + member.size <= _BYTES)

    def begin(self, member: Member, fetch: Callable[[Path], Awaitable[object]]) -> None:
        """Begin a file, which `fetch` downloads to the path that it is given."""
        self._number += 1
        file = self._scratch / f"object-{self._number}"
        self._bytes += member.size
        self._running.append((member, file, asyncio.create_task(self._run(fetch, file))))

    async def take(self) -> tuple[Member, Path]:
        """Wait for the file that was begun first.

        Raises:
            Exception: that of the first download that failed, whichever it is.
        """
        member, file, task = self._running[0]
        while True:
            for _, _, one in self._running:
                if one.done():
                    one.result()
            if task.done():
                break
            waiting = [one for _, _, one in self._running if not one.done()]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        self._running.popleft()
        self._bytes -= member.size
        return member, file

    async def close(self) -> None:
        """End the downloads that are left."""
        tasks = [task for _, _, task in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, fetch: Callable[[Path], Awaitable[object]], file: Path) -> None:
        async with self._at_once:
            await fetch(file)
