"""Reads the content of a tree: for its manifest, and as the stream that is sent. It blocks: call it in threads."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torchctl.client.errors import UsageError
from torchctl.client.tree import LocalFile, Tree, look
from torchctl.workspace.chunks import gathered
from torchctl.workspace.core import show
from torchctl.workspace.errors import WorkspaceError
from torchctl.workspace.manifest import Entry, line
from torchctl.workspace.tree import CHUNK, open_member

__all__ = ["Content", "hash_files", "read"]


@dataclass(frozen=True)
class Content:
    """A tree with the SHA-256 of every file."""

    tree: Tree
    sha256: tuple[bytes, ...]
    """One for each member; empty if it is no file."""

    def __repr__(self) -> str:
        return f"<Content of {self.tree!r}>"

    @cached_property
    def manifest(self) -> bytes:
        pairs = zip(self.tree.members, self.sha256, strict=True)
        return b"".join(line(Entry(local.member, sha256)) for local, sha256 in pairs)

    @cached_property
    def name(self) -> str:
        """The SHA-256 of the manifest, which names the tree, in hexadecimal digits."""
        return hashlib.sha256(self.manifest).hexdigest()


def hash_files(tree: Tree, numbers: Sequence[int]) -> list[bytes]:
    """Return the SHA-256 of some members; empty if it is no file.

    Raises:
        UsageError: one cannot be read, or is no longer the file that was listed.
    """
    return [_sha256(tree, tree.members[number]) for number in numbers]


def read(tree: Tree, numbers: Sequence[int], start: int) -> Iterator[bytes]:
    """Yield the content of some members, one after another, from byte `start` of it on, in pieces of about 1 MiB.

    Raises:
        UsageError: a file cannot be read, or is no longer the file that was listed.
    """
    yield from gathered(_pieces(tree, numbers, start), CHUNK)


def _pieces(tree: Tree, numbers: Sequence[int], start: int) -> Iterator[bytes]:
    at = 0
    for number in numbers:
        local = tree.members[number]
        skip, at = max(0, start - at), at + local.member.size
        if skip < local.member.size:
            yield from _file(tree, local, skip)


def _sha256(tree: Tree, local: LocalFile) -> bytes:
    if local.member.kind != "file":
        return b""
    found = hashlib.sha256()
    for chunk in _file(tree, local, 0):
        found.update(chunk)
    return found.digest()


def _file(tree: Tree, local: LocalFile, start: int) -> Iterator[bytes]:
    at, end = start, local.member.size
    try:
        descriptor = open_member(tree.root, local.member)
    except WorkspaceError as error:
        raise UsageError(error.message, "Make it readable, or leave it out") from None
    try:
        if look(os.fstat(descriptor)) != local.seen:
            raise _changed(local)
        while at < end:
            chunk = os.pread(descriptor, min(CHUNK, end - at), at)
            if not chunk:
                raise _changed(local)
            at += len(chunk)
            yield chunk
    except OSError as error:
        raise UsageError(f"cannot read {show(local.member.path)}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _changed(local: LocalFile) -> UsageError:
    return UsageError(
        f"{show(local.member.path)} changed while it was read",
        "Wait until nothing writes to the directory, or leave the file out",
    )
