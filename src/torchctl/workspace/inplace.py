"""Changes a workspace that workers have mounted: file by file, each renamed into place, and nothing else is touched.

A record on the claim has the files that the last sync put there, and what shows that one was changed or replaced since.
What is not as in the record is the program's: it stays, unless the new tree has that path. Directories are never
removed, because a worker may have another volume mounted on one, and a program may be in one. Workers can write here
while this runs, so no link is ever followed.

Each step may be repeated: a move that a crash ended is begun anew.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from .core import PLACED, RESERVED, directory_mode, show
from .errors import Refused
from .marker import read_marker

__all__ = ["move", "note", "prepare"]

COMES = "comes"
"""The record of the staged tree, in the staging area."""
_DIRECTORY = "d"
_MOST_BYTES = 128 * 2**20
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def note(root: Path) -> None:
    """Record the workspace that the claim has, as a sync has put it there; call it before workers can change it."""
    marker = read_marker(root)
    if marker is None or _read(root / PLACED)[0] == marker.digest:
        return
    _write(root / f"{PLACED}.tmp", marker.digest, _record(root))
    os.rename(root / f"{PLACED}.tmp", root / PLACED)


def prepare(root: Path, staging: Path, digest: str) -> None:
    """Find out if the tree in a staging area can be put in place, and record it there.

    Raises:
        Refused: it has a file where the workspace has a directory, or a directory cannot be changed.
    """
    goes = _read(root / PLACED)[1]
    with _opened(root) as top:
        for path, names, source in _walk(staging / "tree"):
            with suppress(FileNotFoundError, NotADirectoryError), _directory(top, path) as target:
                _check_writable(target, path)
                for name in names:
                    _check_kind(path, name, source, target)
                    _make_newer(name, source, target)
        comes = _record(staging / "tree")
        for path, _ in _by_directory(set(goes) - set(comes)):
            with suppress(FileNotFoundError, NotADirectoryError), _directory(top, path) as target:
                _check_writable(target, path)
    _write(staging / COMES, digest, comes)


def move(root: Path, staging: Path) -> None:
    """Put a tree that was prepared in place of the one that the record of the workspace has."""
    if not (staging / COMES).exists():
        return  # it is in place: the record is moved last
    goes, comes = _read(root / PLACED)[1], _read(staging / COMES)[1]
    with _opened(root) as top:
        _remove(top, {path: how for path, how in goes.items() if path not in comes and how != _DIRECTORY})
        for path, names, source in _walk(staging / "tree"):
            with _directory(top, path) as target:
                for name in names:
                    _place(name, source, target)
    os.rename(staging / COMES, root / PLACED)


def _remove(top: int, goes: Mapping[str, str]) -> None:
    for path, names in _by_directory(goes):
        with suppress(FileNotFoundError, NotADirectoryError), _directory(top, path) as target:
            for name in names:
                if _signature(name, target) == goes[_join(path, name)]:
                    os.unlink(name, dir_fd=target)


def _place(name: str, source: int, target: int) -> None:
    if _signature(name, source) == _DIRECTORY:
        _make(name, source, target)
    else:
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)


def _make(name: str, source: int, target: int) -> None:
    """Make a directory, in place of a file or link if one is there."""
    there = _signature(name, target)
    if there == _DIRECTORY:
        return
    if there:
        os.unlink(name, dir_fd=target)
    os.mkdir(name, 0o700, dir_fd=target)
    with _directory(target, name) as made:
        os.fchmod(made, directory_mode(stat.S_IMODE(os.stat(name, dir_fd=source).st_mode)))


def _check_kind(path: str, name: str, source: int, target: int) -> None:
    if _signature(name, source) != _DIRECTORY and _signature(name, target) == _DIRECTORY:
        raise Refused(
            f"{show(_join(path, name))} is a directory of the workspace that the workers have mounted, and a file of "
            "the new tree",
            next_step="Give the file another name, or submit a new job",
        )


def _check_writable(directory: int, path: str) -> None:
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=directory):
        raise Refused(
            f"the sync pod may not change the directory {show(path or '.')} of the workspace",
            next_step="Have the program leave that directory to the sync pod, or give it write permission",
        )


def _make_newer(name: str, source: int, target: int) -> None:
    """Make a file newer than the one in its place: Python tells by seconds and size that its compiled code is old."""
    comes = os.stat(name, dir_fd=source, follow_symlinks=False)
    with suppress(FileNotFoundError):
        there = os.stat(name, dir_fd=target, follow_symlinks=False)
        newer = int(there.st_mtime) + 1
        if stat.S_ISREG(comes.st_mode) and comes.st_ino != there.st_ino and comes.st_mtime < newer:
            os.utime(name, (newer, newer), dir_fd=source, follow_symlinks=False)


# Directories, without following links.


@contextmanager
def _opened(root: Path) -> Iterator[int]:
    descriptor = os.open(root, _OPEN)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _directory(top: int, path: str) -> Iterator[int]:
    """Open a directory below another, step by step."""
    descriptor = os.dup(top)
    try:
        for part in path.split("/") if path else ():
            inner = os.open(part, _OPEN, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _walk(root: Path) -> Iterator[tuple[str, list[str], int]]:
    """Yield each directory below one with the names in it, from the top down, without what is reserved."""
    with _opened(root) as top:
        for directory, below, files, descriptor in os.fwalk(".", dir_fd=top, onerror=_fail):
            path = directory.removeprefix(".").removeprefix("/")
            if not path:
                below[:] = [name for name in below if name not in RESERVED]
            yield path, [name for name in (*below, *files) if path or name not in RESERVED], descriptor


def _fail(error: OSError) -> None:
    raise error


def _by_directory(paths: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    found = groupby(sorted(path.rpartition("/")[::2] for path in paths), key=lambda one: one[0])
    return ((path, [name for _, name in names]) for path, names in found)


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


# Records.


def _signature(name: str, directory: int) -> str:
    """Return what tells a file from any other that takes its place, and shows that it was changed; empty if none."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return ""
    if stat.S_ISDIR(status.st_mode):
        return _DIRECTORY
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}"


def _record(root: Path) -> dict[str, str]:
    return {_join(path, name): _signature(name, directory) for path, names, directory in _walk(root) for name in names}


def _write(path: Path, digest: str, record: Mapping[str, str]) -> None:
    with path.open("wb") as file:
        file.write(digest.encode() + b"\0")
        file.writelines(f"{how} ".encode() + os.fsencode(name) + b"\0" for name, how in record.items())
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> tuple[str, dict[str, str]]:
    """Return the digest of the tree of a record, and its files; nothing if there is no record.

    Workers can write it, so it is bounded, and no path in it leads out.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return "", {}
    with os.fdopen(descriptor, "rb") as file:
        digest, *lines = file.read(_MOST_BYTES).split(b"\0")
    pairs = ((os.fsdecode(name), how) for how, _, name in (line.partition(b" ") for line in lines))
    record = {name: how.decode("ascii", "replace") for name, how in pairs if ".." not in name.split("/")}
    return digest.decode("ascii", "replace"), record
