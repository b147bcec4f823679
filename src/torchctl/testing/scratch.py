"""Temporary directories that the next process removes if their own was killed.

Each process holds a lock on its directory while it lives, which the kernel releases however it ends. If the lock of a
directory is free and the directory was not given up regularly, its process is dead.
"""

import fcntl
import shutil
import tempfile
from pathlib import Path
from typing import IO

__all__ = ["Scratch"]

_LOCK = ".in-use"


class Scratch:
    """A fresh directory `<prefix>...` under the system's temporary directory. It first removes those of the dead."""

    def __init__(self, prefix: str) -> None:
        for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
            _sweep(lock)
        self.path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        # The lock file gets its final name, by which a sweep finds it, only once it is locked.
        unseen = self.path / f"{_LOCK}.new"
        self._lock: IO[bytes] = unseen.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unseen.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Removes the directory with its content."""
        self._lock.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def keep(self) -> None:
        """Keeps the directory for inspection; no sweep removes it."""
        (self.path / _LOCK).unlink(missing_ok=True)
        self._lock.close()


def _sweep(lock: Path) -> None:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
    except OSError:
        return  # in use, or somebody else's, or gone meanwhile
