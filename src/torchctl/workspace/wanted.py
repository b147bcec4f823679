"""Which tree the workers of a job shall have: the one that the claim has, and whether to start again with it.

A wish comes before its tree is there, or in place of it if the sender gives up. So the claim keeps several: the one for
the tree that it has stays until another tree is in place.
"""

import os
from pathlib import Path

import msgspec

from .core import WISH
from .errors import WorkspaceError
from .marker import read_marker
from .membership.core import Target

__all__ = ["Wish", "read_target", "write_wish"]

_MOST = 8
"""Wishes for trees that are not in place: those of uploads at once, and of uploads that were given up."""


class Wish(msgspec.Struct, frozen=True):
    """What is wanted with a tree; without a wish programs are started again.

    Args:
        revision: the digest of the tree.
        restart: if false, files change under the programs that run.
    """

    revision: str
    restart: bool = True


def read_target(root: Path) -> Target | None:
    """Read what a claim has; None while it has no tree."""
    try:
        marker = read_marker(root)
    except WorkspaceError:
        return None
    if marker is None:
        return None
    restarts = {wish.revision: wish.restart for wish in _read_wishes(root)}
    return Target(marker.digest, restarts.get(marker.digest, True))


def write_wish(root: Path, wish: Wish) -> None:
    """Keep a wish on the claim, where the next companion finds it."""
    there = read_target(root)
    kept = [one for one in _read_wishes(root) if one.revision != wish.revision]
    now = [one for one in kept if there and one.revision == there.revision]
    others = [one for one in kept if one not in now][-_MOST:]
    temporary = root / f"{WISH}.tmp"
    temporary.write_bytes(msgspec.json.encode([*now, *others, wish]))
    os.replace(temporary, root / WISH)


def _read_wishes(root: Path) -> list[Wish]:
    try:
        return msgspec.json.decode((root / WISH).read_bytes(), type=list[Wish])
    except (OSError, msgspec.MsgspecError):
        return []
