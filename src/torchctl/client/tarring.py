"""Unpacks the tar stream of a pod's files, and packs files of this machine for a pod; in bounded memory."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torchctl.client.errors import RequestRefused, UsageError
from torchctl.workspace.core import Guard, Limits, Member, kind_of
from torchctl.workspace.errors import WorkspaceError
from torchctl.workspace.tarstream import END, TarParser, padding, tar_header
from torchctl.workspace.tree import CHUNK, open_member, walk
from torchctl.workspace.unpack import Unpacker

__all__ = ["Arriving", "members_of", "packed"]

LIMITS = Limits(max_bytes=2**50)
"""Checkpoints are large: only the disk limits them."""


class Arriving:
    """Unpacks what arrives: one name, and what is below it."""

    def __init__(self, staging: Path, name: str) -> None:
        self._name = name
        self._files = 0
        self._guard = Guard(LIMITS)
        self._parser = TarParser(LIMITS)
        self._unpacker = Unpacker(staging, self._guard)

    def write(self, data: bytes) -> None:
        for event in self._parser.feed(data):
            if isinstance(event, Member):
                self._add(event)
            else:
                self._unpacker.write(event)

    def end(self) -> tuple[int, int]:
        """Returns the number of files and bytes."""
        if not self._parser.ended:
            raise RequestRefused("the archive from the pod was cut off", "Try again.")
        self._unpacker.close()
        return self._files, self._guard.bytes

    def _add(self, member: Member) -> None:
        if member.parts[:1] != (self._name,):
            raise RequestRefused(f"the pod sends {member.path!r}, which was not asked for")
        self._files += member.kind != "directory"
        self._unpacker.add(member)


def members_of(source: Path) -> list[Member]:
    """Lists what is sent, by the path below the source; the source itself has none. Blocks: call it in a thread.

    Raises:
        UsageError: Something in it cannot be read or sent.
        OSError: The source cannot be read.
    """
    info = source.stat()
    kind = kind_of(info.st_mode)
    if kind is None:
        raise UsageError(f"{source} is neither a file nor a directory")
    own = Member((), kind, info.st_mode & 0o777, info.st_size if kind == "file" else 0, mtime=int(info.st_mtime))
    with _readable():
        return [own, *(walk(source, LIMITS) if kind == "directory" else ())]


@contextmanager
def _readable() -> Iterator[None]:
    """Turns what a workspace must not have into an error of whoever sends it."""
    try:
        yield
    except WorkspaceError as error:
        raise UsageError(error.message, error.next_step) from error


def packed(source: Path, name: str, members: Sequence[Member]) -> Iterator[bytes]:
    """Yields the tar stream of these members, the source under its new name.

    Raises:
        UsageError: A file cannot be read, or changed meanwhile.
        OSError: Reading it fails.
    """
    for member in members:
        yield tar_header(member._replace(parts=(name, *member.parts)))
        if member.kind == "file":
            yield from _content(source, member)
            yield bytes(padding(member.size))
    yield END


def _content(source: Path, member: Member) -> Iterator[bytes]:
    left = member.size
    root, inside = (source, member) if member.parts else (source.parent, member._replace(parts=(source.name,)))
    with _readable():
        opened = open_member(root, inside)
    with os.fdopen(opened, "rb", buffering=0) as file:
        while left:
            chunk = file.read(min(CHUNK, left))
            if not chunk:
                raise UsageError(f"{source.joinpath(*member.parts)} became shorter while it was sent", "Try again.")
            left -= len(chunk)
            yield chunk
