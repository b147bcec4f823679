"""Copies a tree to another volume, or into a tar stream that can be resumed at any offset."""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from .chunks import gathered
from .core import Admitted, Guard, Limits, Member, show
from .errors import Unreachable
from .packed import PackedTree, opened
from .tarstream import END, padding, tar_header
from .tree import CHUNK, open_member, walk
from .unpack import Unpacker

__all__ = ["Listing", "copy_tree", "list_tree", "tar_chunks", "unpack_tree"]

_WORTH = 128 * 1024
"""Bytes that are worth a write to the network."""
_Content: TypeAlias = Callable[[int, int], Iterator[bytes]]


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


def unpack_tree(packed: PackedTree, target: Path, digest: str, limits: Limits) -> Generator[None, None, None]:
    """Unpack a workspace into an empty directory, each content checked as it is read; pause after each piece.

    Raises:
        Refused: it contains something that a workspace must not contain.
        Unreachable: it does not have this digest, or a content is not what the manifest says.
    """
    found = packed.digest()
    if found != digest:
        raise Unreachable(
            f"the workspace's pack has the digest {found} and its marker {digest}", next_step="Sync the workspace again"
        )
    with Unpacker(target, Admitted()) as unpacker:
        for entry, place in packed.entries(limits):
            unpacker.add(entry.member)
            if entry.member.kind == "file":
                for piece in packed.content(entry, place):
                    unpacker.write(piece)
                    yield
            yield
        unpacker.close()


@dataclass(frozen=True)
class Listing:
    """The members of a tree, each with the offset of its header in the tar stream.

    Args:
        places: of the files' content in the pack, if the workspace is packed.
        seen: what tells that pack from another; None if there is none.
    """

    members: tuple[Member, ...]
    offsets: tuple[int, ...]
    size: int
    places: tuple[int, ...] = ()
    seen: tuple[int, int, int] | None = None


def list_tree(root: Path, limits: Limits) -> Listing:
    """List the members of a tree and their offsets in the tar stream.

    Raises:
        Refused, Unreachable: as `tree.walk` and `packed.opened`.
    """
    packed, places = opened(root), tuple[int, ...]()
    if packed is None:
        members = tuple(walk(root, limits))
    else:
        with packed:
            pairs = [(entry.member, place) for entry, place in packed.entries(limits)]
        members, places = tuple(member for member, _ in pairs), tuple(place for _, place in pairs)
    offsets, at = [], 0
    for member in members:
        offsets.append(at)
        at += len(tar_header(member)) + member.size + padding(member.size)
    return Listing(members, tuple(offsets), at + len(END), places, packed.seen if packed else None)


def tar_chunks(root: Path, listing: Listing, start: int = 0) -> Iterator[bytes]:
    """Yield the tar stream of a tree from byte `start` on (`listing.size - start` bytes) in chunks of about 1 MiB.

    Raises:
        Unreachable: a file no longer has the size that was listed, or another workspace is in place.
    """
    with _contents(root, listing) as content:
        yield from gathered(_tar(listing, content, start), _WORTH)


def _tar(listing: Listing, content: _Content, start: int) -> Iterator[bytes]:
    for number, (member, offset) in enumerate(zip(listing.members, listing.offsets, strict=True)):
        header = tar_header(member)
        end = offset + len(header) + member.size + padding(member.size)
        if end <= start:
            continue
        skip = max(0, start - offset)
        if skip < len(header):
            yield header[skip:]
        skip = max(0, skip - len(header))
        if skip < member.size:
            yield from content(number, skip)
        pad = padding(member.size) - max(0, skip - member.size)
        if pad:
            yield bytes(pad)
    yield END[max(0, start - (listing.size - len(END))) :]


@contextmanager
def _contents(root: Path, listing: Listing) -> Iterator[_Content]:
    """Yield the function that returns the content of a member, by its number, from some byte on."""
    if listing.seen is None:
        yield lambda number, start: _content(root, listing.members[number], start)
        return
    packed = opened(root)
    if packed is None:
        raise Unreachable("the workspace was replaced")
    with packed:
        if packed.seen != listing.seen:
            raise Unreachable("the workspace was replaced")
        yield lambda number, start: packed.pieces(listing.places[number] + start, listing.members[number].size - start)


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
