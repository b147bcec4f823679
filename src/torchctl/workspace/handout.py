"""Waits for a finished workspace's marker, and copies the workspace to another volume."""

from pathlib import Path

import anyio

from .copies import copy_tree, unpack_tree
from .core import Limits, show
from .errors import Refused, Unreachable, WorkspaceError
from .marker import Marker, read_marker
from .packed import opened
from .staging import Staging
from .steps import deadline, drive
from .tree import digest

__all__ = ["already_there", "check_directory", "copy", "verify", "wait"]

_POLL_S = 0.5
_TRIES = 3


async def wait(root: Path, *, timeout_s: float, revision: str = "") -> Marker:
    """Wait until the claim has its marker. Polls: network file systems do not report other machines' writes.

    Args:
        revision: the revision or digest that the marker must have; empty: any.

    Raises:
        Unreachable: it did not appear in time.
    """
    what = f"the workspace's revision {show(revision)}" if revision else "the workspace"
    async with deadline(timeout_s, f"waiting for {what} in {root}"):
        while True:
            marker = read_marker(root)
            if marker is not None and marker.is_of(revision):
                return marker
            await anyio.sleep(_POLL_S)


async def copy(source: Path, target: Path, *, timeout_s: float, limits: Limits, marked: bool = True) -> Marker:
    """Copy a finished workspace, verify it, and mark the copy; a target that has it already is left alone.

    Args:
        marked: wait for the source's marker and verify the copy against it. If false, the source is copied as it is.

    Raises:
        Unreachable: no marker in time, or the source kept changing.
        Refused: the source contains something that a workspace must not contain, or the target is not empty.
    """
    _check_apart(source, target)
    async with deadline(timeout_s, f"copying the workspace from {source}"):
        marker = await wait(source, timeout_s=timeout_s) if marked else await _unmarked(source, limits)
        if already_there(target, marker.digest):
            return marker
        for attempt in range(1, _TRIES):
            try:
                return await _copy_once(source, target, marker, limits)
            except Unreachable:
                await anyio.sleep(attempt)  # a client of a network file system may lag behind the marker
            marker = (read_marker(source) if marked else await _unmarked(source, limits)) or marker
        return await _copy_once(source, target, marker, limits)


def already_there(target: Path, digest_: str) -> bool:
    """Tell if an earlier run of this container already delivered this workspace, so that it is left unchanged."""
    present = read_marker(target)
    return present is not None and present.digest == digest_


async def verify(tree: Path, expected: str, limits: Limits) -> None:
    """Compare the digest of a tree with the expected one.

    Raises:
        Unreachable: the tree has another digest.
    """
    found = (await drive(digest(tree, limits))).digest
    if found != expected:
        raise Unreachable(
            f"the copy has the digest {found} and the workspace {expected}",
            next_step="Something wrote to the workspace after it was synced, or the volume lost data: sync again",
        )


async def _copy_once(source: Path, target: Path, marker: Marker, limits: Limits) -> Marker:
    staging = Staging(target)
    staging.open()
    packed = opened(source)
    if packed is None:
        await drive(copy_tree(source, staging.tree, limits))
        await verify(staging.tree, marker.digest, limits)
    else:
        with packed:
            await drive(unpack_tree(packed, staging.tree, marker.digest, limits))
    staging.publish(marker)
    return marker


async def _unmarked(source: Path, limits: Limits) -> Marker:
    found = await drive(digest(source, limits))
    return Marker(revision=found.digest, digest=found.digest, bytes=found.bytes, files=found.files, source="existing")


def check_directory(path: Path) -> None:
    """Check that a directory exists.

    Raises:
        Refused: there is no such directory.
    """
    if not path.is_dir():
        raise Refused(f"there is no directory {path}", next_step="Mount the volume there")


def _check_apart(source: Path, target: Path) -> None:
    check_directory(source)
    check_directory(target)
    one, other = source.resolve(), target.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise WorkspaceError(f"{source} and {target} are not apart")
