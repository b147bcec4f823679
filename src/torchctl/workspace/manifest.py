"""The manifest of a tree: one line per member, sorted by path as bytes. The digest of a tree is the manifest's SHA-256.

    file: `f <x or -> <size> <sha256 of the content> <path> NUL`    link: `l <target> NUL <path> NUL`
    directory: `d <path> NUL`

Of a file's mode only the owner's execute bit counts, as in git: a kubelet that applies fsGroup changes the group's bits
of a claim between two pods, and the workspace is still the same. Times and owners do not count. A tree has exactly one
manifest, so whoever has the manifest knows the tree's digest without having the tree.
"""

import re
from binascii import unhexlify
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .core import Guard, Limits, Member, parts_of, show
from .errors import Refused

__all__ = ["EMPTY", "Entry", "checked", "entries", "line"]

EMPTY = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
"""The SHA-256 of a file without content."""

_FILE = re.compile(rb"f ([x-]) (0|[1-9][0-9]{0,17}) ([0-9a-f]{64}) (.*)\Z", re.DOTALL)
_NEXT = "Send the tree with a torchctl of the operator's version"


class Entry(NamedTuple):
    """A member of a tree and, of a file, the SHA-256 of its content."""

    member: Member
    sha256: bytes = b""


def line(entry: Entry) -> bytes:
    """Return the line of an entry."""
    member, path = entry.member, _bytes(entry.member.path)
    if member.kind == "directory":
        return b"d %s\0" % path
    if member.kind == "link":
        return b"l %s\0%s\0" % (_bytes(member.target), path)
    flag = b"x" if member.mode & 0o100 else b"-"
    return b"f %s %d %s %s\0" % (flag, member.size, entry.sha256.hex().encode(), path)


def entries(chunks: Iterable[bytes], limits: Limits) -> Iterator[Entry]:
    """Parse a manifest in bounded memory. It has no times: members are as old as their copies.

    Raises:
        Refused: it is no manifest, not in order, cut off, or a name in it is unsafe.
    """
    fields = _fields(chunks, 2 * limits.max_path + 128)
    before = b""
    for head in fields:
        path, entry = _entry(head, fields, limits)
        if path <= before:
            raise Refused(f"the manifest has {_shown(path)} twice or out of order", next_step=_NEXT)
        before = path
        yield entry


def checked(found: Iterable[Entry], limits: Limits) -> Iterator[Entry]:
    """Pass entries on that are allowed in a workspace and whose directories are in the manifest too.

    Raises:
        Refused: an entry breaks a rule of the tree, or they exceed a limit (see `Guard`).
    """
    guard = Guard(limits)
    for entry in found:
        if guard.admit(entry.member):
            raise Refused(f"the manifest has {show(entry.member.path)} without its directory", next_step=_NEXT)
        guard.spend(entry.member.size)
        if entry.member.kind != "directory":
            guard.forget(entry.member)
        yield entry


def _entry(head: bytes, fields: Iterator[bytes], limits: Limits) -> tuple[bytes, Entry]:
    if found := _FILE.match(head):
        flag, size, sha256, path = found.groups()
        mode = 0o755 if flag == b"x" else 0o644
        return path, Entry(Member(_parts(path, limits), "file", mode, int(size), "", -1), unhexlify(sha256))
    if head.startswith(b"l "):
        path = next(fields, b"")
        target = _text(head[2:])
        return path, Entry(Member(_parts(path, limits), "link", 0o777, target=target, mtime=-1))
    if head.startswith(b"d "):
        path = head[2:]
        return path, Entry(Member(_parts(path, limits), "directory", 0o755, mtime=-1))
    raise Refused(f"the manifest has the broken line {_shown(head)}", next_step=_NEXT)


def _parts(path: bytes, limits: Limits) -> tuple[str, ...]:
    name = _text(path)
    parts = parts_of(name, limits)
    if "/".join(parts) != name or not parts:
        raise Refused(f"the manifest has the unsafe name {show(name)}", next_step=_NEXT)
    return parts


def _fields(chunks: Iterable[bytes], longest: int) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole
        if len(rest) > longest:
            raise Refused(f"the manifest has a line of more than {longest} bytes", next_step=_NEXT)
    if rest:
        raise Refused("the manifest is cut off", next_step=_NEXT)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _shown(data: bytes) -> str:
    return show(_text(data))
