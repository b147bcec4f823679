"""Writes members into an empty directory. No other code creates a workspace's files.

Files are made with O_EXCL and O_NOFOLLOW. Links are made after everything else, so that nothing can be written through
one. The modes of directories are set last, so that a read-only directory can be filled.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from .core import Admitted, Guard, Member, directory_mode, file_mode, show
from .errors import Refused
from .flush import start_flush

__all__ = ["Unpacker"]

_LARGE = 2**20
"""Bytes above which a file's way to the disk begins at its end: the flush of the volume later finds less to do."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
        self._file = self._directory = -1
        self._inside: tuple[str, ...] = ()
        self._member: Member | None = None
        self._written = 0
        self._exact: dict[int, bool] = {}

    def __enter__(self) -> "Unpacker":
        return self

    def __exit__(self, *_: object) -> None:
        opened, self._file, self._directory = (self._file, self._directory), -1, -1
        for descriptor in opened:
            if descriptor >= 0:
                os.close(descriptor)

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
        self.__exit__()
        for link in self._links:
            os.symlink(link.target, self._path(link.parts))
        for directory in reversed(self._directories):
            path = self._path(directory.parts)
            os.chmod(path, directory_mode(directory.mode))
            if directory.mtime >= 0:
                os.utime(path, (directory.mtime, directory.mtime))

    def _make_directory(self, member: Member) -> None:
        path = self._path(member.parts)
        if not os.path.isdir(path):
            os.mkdir(path, 0o700)
        self._directories.append(member)

    def _begin_file(self, member: Member) -> None:
        *inside, name = member.parts
        self._file = os.open(name, _NEW, file_mode(member.mode), dir_fd=self._opened(tuple(inside)))
        self._member, self._written = member, 0

    def _opened(self, parts: tuple[str, ...]) -> int:
        """Open a directory, or go on with the one of the file before: a path is walked once for all files in it."""
        if self._directory < 0 or parts != self._inside:
            self.__exit__()
            self._directory, self._inside = os.open(self._path(parts), _DIRECTORY), parts
        return self._directory

    def _end_file(self) -> None:
        member, self._member = self._member, None
        if member is None:
            return
        descriptor, self._file = self._file, -1
        try:
            if self._written != member.size:
                raise Refused(f"{show(member.path)} has {self._written} bytes instead of {member.size}")
            if member.size > _LARGE:
                start_flush(descriptor)
            self._set_mode(descriptor, file_mode(member.mode))
            if member.mtime >= 0:
                os.utime(descriptor, (member.mtime, member.mtime))
        finally:
            os.close(descriptor)

    def _set_mode(self, descriptor: int, mode: int) -> None:
        """Set the bits that the process's umask held back. Whether it did is looked up once for each mode."""
        if mode not in self._exact:
            self._exact[mode] = stat.S_IMODE(os.fstat(descriptor).st_mode) == mode
        if not self._exact[mode]:
            os.fchmod(descriptor, mode)

    def _path(self, parts: tuple[str, ...]) -> str:
        return f"{self._root}/{'/'.join(parts)}"
