"""Reads a tree: its members in a fixed order, its digest, its bytes. Links are never followed."""

import hashlib
import os
import stat
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from .core import RESERVED, Limits, Member, kind_of, show
from .errors import Refused, Unreachable
from .manifest import Entry, line

__all__ = ["CHUNK", "Summary", "digest", "open_member", "walk"]

CHUNK = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_QUIETLY = _READ | getattr(os, "O_NOATIME", 0)  # Linux only; laptops send trees too


@dataclass(frozen=True)
class Summary:
    """The digest, total bytes, and number of files and links of a tree."""

    digest: str
    bytes: int
    files: int


def walk(root: Path, limits: Limits) -> list[Member]:
    """List all members below root except reserved names, directories before their content, in the digest's order.

    Raises:
        Refused: a device, socket or pipe, or more entries or bytes than the limits allow.
        Unreachable: something cannot be read, or vanished meanwhile.
    """
    try:
        members = sorted(_scan(root, (), limits, [0]), key=lambda m: os.fsencode(m.path))
    except OSError as error:
        raise Unreachable(f"cannot read {show(str(error.filename))}: {error.strerror}") from None
    if sum(m.size for m in members) > limits.max_bytes:
        raise Refused(f"the workspace has more than {limits.max_bytes} bytes", next_step="Use a dataset claim for data")
    return members


def _scan(root: Path, parents: tuple[str, ...], limits: Limits, count: list[int]) -> Iterator[Member]:
    if 2 * len(parents) > limits.max_path:
        raise Refused(f"the path {show('/'.join(parents))} is too long", next_step="Leave out what is so deep")
    with os.scandir(root.joinpath(*parents)) as entries:
        for entry in entries:
            if not parents and entry.name in RESERVED:
                continue
            count[0] += 1
            if count[0] > limits.max_entries:
                raise Refused(f"the workspace has more than {limits.max_entries} entries")
            member = _member(entry, (*parents, entry.name))
            yield member
            if member.kind == "directory":
                yield from _scan(root, member.parts, limits, count)


def _member(entry: os.DirEntry[str], parts: tuple[str, ...]) -> Member:
    info = entry.stat(follow_symlinks=False)
    kind = kind_of(info.st_mode)
    if kind is None:
        raise Refused(f"{show('/'.join(parts))} is a device, a socket or a pipe", next_step="Remove it from the source")
    return Member(
        parts,
        kind,
        mode=stat.S_IMODE(info.st_mode) & 0o777,
        size=info.st_size if kind == "file" else 0,
        target=os.readlink(entry.path) if kind == "link" else "",
        mtime=int(info.st_mtime),
    )


def open_member(root: Path, member: Member) -> int:
    """Open a file of the tree. If it was replaced by a link meanwhile, it is refused, not followed."""
    path = f"{root}/{member.path}"  # many times cheaper than a Path
    try:
        return os.open(path, _READ_QUIETLY)
    except PermissionError:  # only the owner may use O_NOATIME
        pass
    except OSError as error:
        raise Unreachable(f"cannot read {show(member.path)}: {error.strerror}") from None
    try:
        return os.open(path, _READ)
    except OSError as error:
        raise Unreachable(f"cannot read {show(member.path)}: {error.strerror}") from None


def digest(root: Path, limits: Limits) -> Generator[None, None, Summary]:
    """Digest a tree as `manifest` defines it, pausing after each chunk so that a deadline or a signal can stop it.

    Returns:
        The summary (as the generator's value).

    Raises:
        Refused, Unreachable: as `walk`.
    """
    total, files, whole = 0, 0, hashlib.sha256()
    for member in walk(root, limits):
        entry = Entry(member)
        if member.kind == "file":
            size, content = yield from _hash(root, member)
            entry = Entry(member._replace(size=size), content)
            total += size
        files += member.kind != "directory"
        whole.update(line(entry))
    return Summary(f"sha256:{whole.hexdigest()}", total, files)


def _hash(root: Path, member: Member) -> Generator[None, None, tuple[int, bytes]]:
    size, content = 0, hashlib.sha256()
    with os.fdopen(open_member(root, member), "rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            size += len(chunk)
            content.update(chunk)
            yield
    return size, content.digest()
