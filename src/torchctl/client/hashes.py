"""Remembers on this machine the SHA-256 of files that were read before, so that a large tree is read once.

A file is taken for unchanged if size, inode, and the times of change of content and of inode are as they were, as git's
index does. One that changed within two seconds before it was read is not remembered: within one tick of a coarse clock
it may have changed again.
"""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from torchctl.client.content import Content
from torchctl.client.tree import Tree

__all__ = ["MOST", "keep", "known"]

MOST = 20
"""The number of directories whose files are remembered; those that were not sent for the longest time go."""
_SETTLED_NS = 2 * 10**9

_Files: TypeAlias = dict[bytes, tuple[tuple[int, int, int, int], bytes]]
"""How a file looked and its SHA-256, by path."""


def known(tree: Tree) -> Mapping[int, bytes]:
    """Returns the SHA-256 of the members that look as they did when they were read, by number."""
    file = _file(tree)
    try:
        files = msgspec.msgpack.decode(file.read_bytes(), type=_Files)
    except (OSError, msgspec.DecodeError):
        return {}
    with contextlib.suppress(OSError):
        os.utime(file)  # it is in use
    found = ((number, files.get(os.fsencode(local.member.path))) for number, local in enumerate(tree.members))
    return {number: file[1] for number, file in found if file and file[0] == tree.members[number].seen}


def keep(content: Content, began_ns: int) -> None:
    """Remembers the files of a tree. A directory that cannot be written to is no failure of what is sent.

    Args:
        content: whose files were read.
        began_ns: when the reading began, in nanoseconds since the epoch.
    """
    pairs = zip(content.tree.members, content.sha256, strict=True)
    files: _Files = {
        os.fsencode(local.member.path): (local.seen, sha256)
        for local, sha256 in pairs
        if sha256 and max(local.seen[1], local.seen[3]) < began_ns - _SETTLED_NS
    }
    target = _file(content.tree)
    part = target.with_suffix(f".{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.msgpack.encode(files))
        part.replace(target)
        for old in sorted(target.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)[:-MOST]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def _file(tree: Tree) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "torchctl" / "hashes" / hashlib.sha256(os.fsencode(tree.root.resolve())).hexdigest()
