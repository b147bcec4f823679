"""Remembers on this machine which files the trees had that were sent from it, so that a job can go back to one.

The contents are not kept here: the job's companion has them, for as long as its store has room.
"""

import os
from pathlib import Path

__all__ = ["MOST", "forget", "keep", "known"]

MOST = 200
"""The number of trees that are remembered; the oldest go."""


def keep(revision: str, manifest: bytes) -> None:
    """Remembers the manifest of a tree. A directory that cannot be written to is no failure of what was sent."""
    directory = _directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        part = directory / f".{os.getpid()}.part"
        part.write_bytes(manifest)
        part.replace(directory / _name(revision))
        forget(MOST)
    except OSError:
        return


def known(revision: str) -> bytes | None:
    """Returns the manifest of a tree; None if it was not sent from here, or is forgotten."""
    try:
        return (_directory() / _name(revision)).read_bytes()
    except OSError:
        return None


def forget(most: int) -> None:
    """Removes the oldest until so many are left."""
    found = sorted(_directory().iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in found[most:]:
        path.unlink(missing_ok=True)


def _directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchctl" / "trees"


def _name(revision: str) -> str:
    return "".join(letter for letter in revision.removeprefix("sha256:") if letter.isalnum())[:64] or "none"
