"""The workspace that a claim has already: a file that the next tree has too need not be sent, and not be copied either.

A file counts as present if it has the size and the SHA-256 under the same path, whoever put the workspace there. It is
linked into the staged tree, not copied: the earlier tree is removed when the new one is moved into place, so this moves
the file. It must not have changed since it was hashed. Of a packed workspace the path does not count, and what the next
tree has too is copied.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from .core import Limits
from .errors import Unreachable, WorkspaceError
from .manifest import Entry
from .marker import read_marker
from .packed import PackedTree, opened
from .store import Vanished
from .tree import CHUNK, open_member

__all__ = ["Present", "PresentFiles", "PresentPack", "look"]

_NO_LINKS = (errno.EPERM, errno.EACCES, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)


class PresentFiles:
    """A workspace of files at `root`.

    Args:
        since: a file of the same volume that was written before anything is asked for; its time is the volume's clock.
    """

    def __init__(self, root: Path, since: Path) -> None:
        self._root = root
        self._since_ns = since.stat().st_mtime_ns
        self._parents: dict[tuple[str, ...], bool] = {}

    def has(self, entry: Entry) -> bool:
        """Tell if the workspace has this very file."""
        member = entry.member
        if not member.size or not self._inside(member.parts[:-1]):
            return False
        try:
            info = os.lstat(f"{self._root}/{member.path}")
            if not stat.S_ISREG(info.st_mode) or info.st_size != member.size:
                return False
            found = hashlib.sha256()
            for chunk in self._chunks(entry):
                found.update(chunk)
        except (OSError, Unreachable):
            return False
        return found.digest() == entry.sha256

    def link(self, entry: Entry, target: str) -> bool:
        """Link a file that the workspace has to a path in the staged tree; False if it must be copied.

        Raises:
            Vanished: it has changed since it was hashed.
        """
        source = f"{self._root}/{entry.member.path}"
        try:
            info = os.lstat(source)
            if info.st_ctime_ns >= self._since_ns or not stat.S_ISREG(info.st_mode):
                raise _changed()
            if bool(info.st_mode & 0o100) != bool(entry.member.mode & 0o100):
                return False
            os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            raise _changed() from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return False
        return True

    def read(self, entry: Entry) -> Iterator[bytes]:
        """Yield the content of a file that the workspace has.

        Raises:
            Vanished: after the last chunk, if it has changed since it was hashed.
        """
        found = hashlib.sha256()
        with contextlib.suppress(Unreachable):
            for chunk in self._chunks(entry):
                found.update(chunk)
                yield chunk
        if found.digest() != entry.sha256:
            raise _changed()

    def close(self) -> None:
        """Nothing stays open."""

    def _chunks(self, entry: Entry) -> Iterator[bytes]:
        descriptor = open_member(self._root, entry.member)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            left = entry.member.size
            while left and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk

    def _inside(self, parents: tuple[str, ...]) -> bool:
        """Tell if a directory is one of the workspace, and not reached through a link."""
        known = self._parents.get(parents)
        if known is None:
            known = not parents or (self._inside(parents[:-1]) and _is_directory(f"{self._root}/{'/'.join(parents)}"))
            self._parents[parents] = known
        return known


class PresentPack:
    """A workspace that is packed.

    Raises:
        Unreachable, Refused: its manifest cannot be read.
    """

    def __init__(self, tree: PackedTree, limits: Limits) -> None:
        self._tree = tree
        self._places = {entry.sha256: place for entry, place in tree.entries(limits) if entry.member.size}

    def has(self, entry: Entry) -> bool:
        """Tell if the workspace has this content."""
        place = self._places.get(entry.sha256)
        if place is None:
            return False
        try:
            for _ in self._tree.content(entry, place):
                pass
        except Unreachable:
            return False
        return True

    def link(self, entry: Entry, target: str) -> bool:
        """There is no file to link."""
        return False

    def read(self, entry: Entry) -> Iterator[bytes]:
        """Yield the content of a file that the workspace has.

        Raises:
            Vanished: after the last chunk, if it has changed since it was hashed.
        """
        try:
            yield from self._tree.content(entry, self._places[entry.sha256])
        except Unreachable:
            raise _changed() from None

    def close(self) -> None:
        self._tree.close()


Present: TypeAlias = PresentFiles | PresentPack


def look(root: Path, since: Path, limits: Limits) -> Present | None:
    """Return the workspace that a claim has; None if there is none, or its pack is damaged, and then all is sent."""
    if read_marker(root) is None:
        return None
    try:
        packed = opened(root)
    except Unreachable:
        return None
    if packed is None:
        return PresentFiles(root, since)
    try:
        return PresentPack(packed, limits)
    except WorkspaceError:
        packed.close()
        return None


def _changed() -> Vanished:
    return Vanished("the workspace changed while another one was received", next_step="Send it again")


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
