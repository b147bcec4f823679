"""The marker `.sync_success`, written last: shows that the claim holds a complete workspace, and which one."""

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from .core import MARKER
from .errors import Refused
from .flush import flush_directory, flush_filesystem

__all__ = ["Marker", "fingerprint", "read_marker", "remove_marker", "write_marker"]


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The description of the workspace that a claim holds.

    Args:
        revision: the commit id (git), `sha256:` of the archive (zip, s3), or the digest (existing, a folder of s3).
        digest: of the tree as `tree.digest` defines it; every copy of the workspace is verified against it.
        bytes: sum of the sizes of all files.
        files: number of files and links.
        source: git, zip, s3, existing.
        request: fingerprint of the request, so that repeating it is a no-op.
    """

    revision: str
    digest: str
    bytes: int
    files: int
    source: str
    request: str = ""

    def is_of(self, revision: str) -> bool:
        """Tell if this is the workspace of a revision or digest, with or without `sha256:`; empty: any."""
        names = {self.revision, self.digest}
        return not revision or revision in names | {name.removeprefix("sha256:") for name in names}

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def report(self) -> str:
        """Return the termination message, which the operator copies into the job's status."""
        return json.dumps({k: v for k, v in asdict(self).items() if k != "request"}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Marker":
        """Parse a marker.

        Raises:
            Refused: the text is not a marker.
        """
        try:
            data = json.loads(text)
            return cls(
                revision=str(data["revision"]),
                digest=str(data["digest"]),
                bytes=int(data["bytes"]),
                files=int(data["files"]),
                source=str(data["source"]),
                request=str(data.get("request", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refused(f"{MARKER} is not a marker of torchctl ({error!r})", next_step="Sync again") from None


def fingerprint(**request: str) -> str:
    """Return a short hash of a request; equal requests have equal fingerprints."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]


def read_marker(root: Path) -> Marker | None:
    """Read the marker of a claim; None while there is none.

    Raises:
        Refused: the file of that name is no marker.
    """
    try:
        descriptor = os.open(root / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(error) from None
    try:
        content = os.read(descriptor, 64 * 1024)
    except OSError as error:  # a directory; a network file system that lost it
        raise _unreadable(error) from None
    finally:
        os.close(descriptor)
    return Marker.from_json(content.decode("utf-8", "replace"))


def _unreadable(error: OSError) -> Refused:
    return Refused(f"cannot read {MARKER}: {error.strerror}")


def write_marker(root: Path, marker: Marker) -> None:
    """Flush everything below root to disk, then write the marker, so that after a power cut it implies the tree."""
    temporary = root / (MARKER + ".tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    flush_filesystem(root)
    with temporary.open("x", encoding="utf-8") as file:
        file.write(marker.to_json() + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(0o644)
    temporary.replace(root / MARKER)
    flush_directory(root)


def remove_marker(root: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        (root / MARKER).unlink()
    flush_directory(root)
