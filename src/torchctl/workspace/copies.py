"""Copies a tree to another volume, or into a tar stream that can be resumed at any offset."""

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from .core import Guard, Limits, Member, show
from .errors import Unreachable
from .tarstream import END, padding, tar_header
from .tree import CHUNK, open_member, walk
from .unpack import Unpacker

__all__ = ["Listing", "copy_tree", "list_tree", "tar_chunks"]


def copy_tree(source: Path, target: Path, limits: Limits) -> Generator[None, None, None]:
    """Copy a tree into an empty directory with dotfiles, modes, times, and links as links; pause after each chunk.

    Raises:
        Refused: the tree contains something that a workspace must not contain.
        Unreachable: the source changed while it was read.
    """
    with Unpacker(target, Guard(limits)) as unpacker:
        for member in walk(source, limits):
            unpacker.add(member)
            if member.kind == "file":
                for chunk in _content(source, member):
                    unpacker.write(chunk)
                    yield
            yield
        unpacker.close()


@dataclass(frozen=True)
class Listing:
    """The members of a tree, each with the offset of its header in the tar stream."""

    members: tuple[Member, ...]
    offsets: tuple[int, ...]
    size: int


def list_tree(root: Path, limits: Limits) -> Listing:
    """List the members of a tree and their offsets in the tar stream.

    Raises:
        Refused, Unreachable: as `tree.walk`.
    """
    members = tuple(walk(root, limits))
    offsets, at = [], 0
    for member in members:
        offsets.append(at)
        at += len(tar_header(member)) + member.size + padding(member.size)
    return Listing(members, tuple(offsets), at + len(END))


def tar_chunks(root: Path, listing: Listing, start: int = 0) -> Iterator[bytes]:
    """Yield the tar stream of a tree from byte `start` on, in chunks of at most 1 MiB: `listing.size - start` bytes.

    Raises:
        Unreachable: a file no longer has the size that was listed.
    """
    for member, offset in zip(listing.members, listing.offsets, strict=True):
        header = tar_header(member)
        end = offset + len(header) + member.size + padding(member.size)
        if end <= start:
            continue
        skip = max(0, start - offset)
        if skip < len(header):
            yield header[skip:]
        skip = max(0, skip - len(header))
        if skip < member.size:
            yield from _content(root, member, skip)
        pad = padding(member.size) - max(0, skip - member.size)
        if pad:
            yield bytes(pad)
    yield END[max(0, start - (listing.size - len(END))) :]


def _content(root: Path, member: Member, start: int = 0) -> Iterator[bytes]:
    left = member.size - start
    with os.fdopen(open_member(root, member), "rb", buffering=0) as file:
        file.seek(start)
        while left:
            chunk = file.read(min(CHUNK, left))
            if not chunk:
                raise Unreachable(f"{show(member.path)} became shorter while it was read")
            left -= len(chunk)
            yield chunk
