"""Writes members into an empty directory. No other code creates a workspace's files.

Files are made with O_EXCL and O_NOFOLLOW. Links are made after everything else, so that nothing can be written through
one. The modes of directories are set last, so that a read-only directory can be filled.
"""

import os
from collections.abc import Callable
from pathlib import Path

from .core import Admitted, Guard, Member, directory_mode, file_mode, show
from .errors import Refused

__all__ = ["Unpacker"]


class Unpacker:
    """Writes one member after another: `add(member)`, `write(data)` for a file's content, `close()` at the end.

    Raises:
        Refused: the guard refuses a member, or a file's content does not have the announced size.
    """

    def __init__(self, root: Path, guard: Guard | Admitted) -> None:
        self._root = root
        self._guard = guard
        self._links: list[Member] = []
        self._directories: list[Member] = []
        self._file = -1
        self._member: Member | None = None
        self._written = 0

    def __enter__(self) -> "Unpacker":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def add(self, member: Member) -> None:
        self._end_file()
        if not member.parts and member.kind == "directory":
            return  # "./"
        for parts in self._guard.admit(member):
            self._make_directory(Member(parts, "directory", mode=0o755))
        if member.kind == "directory":
            self._make_directory(member)
        elif member.kind == "link":
            self._links.append(member)
        else:
            self._begin_file(member)

    def take(self, member: Member, place: Callable[[str], bool]) -> bool:
        """Add a file that `place` puts at the path that it is given; False if it did not, and then nothing is added."""
        self._end_file()
        self._guard.admit(member)
        return place(self._path(member.parts))

    def write(self, data: bytes | memoryview) -> None:
        self._guard.spend(len(data))
        self._written += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def close(self) -> None:
        self._end_file()
        for link in self._links:
            os.symlink(link.target, self._path(link.parts))
        for directory in reversed(self._directories):
            path = self._path(directory.parts)
            os.chmod(path, directory_mode(directory.mode))
            os.utime(path, (directory.mtime, directory.mtime))

    def _make_directory(self, member: Member) -> None:
        path = self._path(member.parts)
        if not os.path.isdir(path):
            os.mkdir(path, 0o700)
        self._directories.append(member)

    def _begin_file(self, member: Member) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self._path(member.parts), flags, 0o600)
        self._member, self._written = member, 0

    def _end_file(self) -> None:
        member, self._member = self._member, None
        if member is None:
            return
        descriptor, self._file = self._file, -1
        try:
            if self._written != member.size:
                raise Refused(f"{show(member.path)} has {self._written} bytes instead of {member.size}")
            os.fchmod(descriptor, file_mode(member.mode))
            os.utime(descriptor, (member.mtime, member.mtime))
        finally:
            os.close(descriptor)

    def _path(self, parts: tuple[str, ...]) -> str:
        return f"{self._root}/{'/'.join(parts)}"
