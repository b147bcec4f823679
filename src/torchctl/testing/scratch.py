"""Temporary directories that are cleared even after a process that was killed: by the next one.

Each holds a lock for as long as its process lives; the kernel lets go of it however that ends. A directory whose
lock is free and that was not given up in order is a dead process's.
"""

import fcntl
import shutil
import tempfile
from pathlib import Path
from typing import IO

__all__ = ["Scratch"]

_LOCK = ".in-use"


class Scratch:
    """A fresh directory `<prefix>...` under the system's temporary directory. Making it sweeps those of the dead."""

    def __init__(self, prefix: str) -> None:
        for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
            _sweep(lock)
        self.path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        # It gets the name by which a sweep finds it once it is locked.
        unseen = self.path / f"{_LOCK}.new"
        self._lock: IO[bytes] = unseen.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unseen.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Removes it with all that is in it."""
        self._lock.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def keep(self) -> None:
        """Leaves it to whoever wants to look; no sweep removes it."""
        (self.path / _LOCK).unlink(missing_ok=True)
        self._lock.close()


def _sweep(lock: Path) -> None:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
    except OSError:
        return  # in use, or somebody else's, or gone meanwhile
