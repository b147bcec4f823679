"""Notices what somebody copied onto the claim by hand: a `workspace.zip` at its root, or a tree and its marker."""

import hashlib
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from .core import MARKER, Limits, show
from .errors import Refused
from .marker import Marker, read_marker
from .staging import Staging
from .steps import drive
from .tree import CHUNK, digest
from .zips import is_complete, unpack_zip

__all__ = ["ARCHIVE", "Arrival", "unpack_by_hand", "wanted_marker"]

ARCHIVE = "workspace.zip"
_SETTLED_S = 1.0
_BROKEN_S = 60.0


def wanted_marker(root: Path, revision: str) -> Marker | None:
    """Return the claim's marker if it is of the revision or digest that is waited for; empty: any.

    Raises:
        Refused: the file of that name is no marker.
    """
    marker = read_marker(root)
    return marker if marker and marker.is_of(revision) else None


@dataclass
class Arrival:
    """Watches a file grow until it has settled; look at it a few times a second."""

    root: Path
    _seen: tuple[int, int, int] = (0, 0, 0)
    _since: float = 0.0

    def settled(self) -> bool:
        """Tell if an archive is there and whole: unchanged for a second, with the end that a zip file has.

        Raises:
            Refused: it has not changed for a minute and is not whole.
        """
        path = self.root / ARCHIVE
        try:
            status = path.lstat()
            if path.is_symlink() or not path.is_file() or not self._is_new(status.st_ctime_ns):
                return False
        except FileNotFoundError:
            return False
        now, seen = time.monotonic(), (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen != self._seen:
            self._seen, self._since = seen, now
        quiet = now - self._since
        if quiet >= _SETTLED_S and is_complete(path):
            return True
        if quiet >= _BROKEN_S:
            raise Refused(
                f"{ARCHIVE} is not a whole zip file", next_step="Copy it again, or use kubectl torchrun submit"
            )
        return False

    def _is_new(self, changed_ns: int) -> bool:
        """Tell it from a file of that name in a workspace that is there already."""
        if read_marker(self.root) is None:
            return True
        return changed_ns > (self.root / MARKER).lstat().st_ctime_ns


async def unpack_by_hand(root: Path, *, limits: Limits, revision: str = "") -> Marker:
    """Check the archive at the root, put its tree in place of it, and mark the claim.

    Raises:
        Refused: it contains something that a workspace must not contain, or is not the revision that is waited for.
    """
    archive, staging = root / ARCHIVE, Staging(root, spent=[ARCHIVE])
    staging.open(keep=True)
    checksum = await drive(_sha256(archive))
    await drive(unpack_zip(archive, staging.tree, limits))
    summary = await drive(digest(staging.tree, limits))
    if revision and revision.removeprefix("sha256:") not in (checksum, summary.digest.removeprefix("sha256:")):
        raise Refused(
            f"{ARCHIVE} has the SHA-256 {checksum}, and the job waits for the revision {show(revision)}",
            next_step="Copy that archive, or update volumes.workspace.revision",
        )
    marker = Marker(
        revision=f"sha256:{checksum}", digest=summary.digest, bytes=summary.bytes, files=summary.files, source="zip"
    )
    staging.publish(marker)
    return marker


def _sha256(path: Path) -> Generator[None, None, str]:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
            yield
    return found.hexdigest()
