"""Which tree the workers of a job shall have: the one that the claim has, and whether to start again with it."""

import os
from pathlib import Path

import msgspec

from .core import WISH
from .errors import WorkspaceError
from .marker import read_marker
from .membership.core import Target

__all__ = ["Wish", "read_target", "write_wish"]


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
    wish = _read_wish(root)
    return Target(marker.digest, wish.restart if wish and wish.revision == marker.digest else True)


def write_wish(root: Path, wish: Wish) -> None:
    """Keep a wish on the claim, where the next companion finds it."""
    temporary = root / f"{WISH}.tmp"
    temporary.write_bytes(msgspec.json.encode(wish))
    os.replace(temporary, root / WISH)


def _read_wish(root: Path) -> Wish | None:
    try:
        return msgspec.json.decode((root / WISH).read_bytes(), type=Wish)
    except (OSError, msgspec.DecodeError):
        return None
