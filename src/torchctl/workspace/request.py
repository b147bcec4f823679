"""What a sync pod is asked to do, checked before anything is touched."""

from dataclasses import dataclass, field
from pathlib import Path

from .core import Limits, parts_of, show
from .errors import Refused
from .gitcommand import GitSource
from .marker import fingerprint
from .urls import check_url

__all__ = ["FetchRequest"]

_HEX = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, kw_only=True)
class FetchRequest:
    """Where a workspace comes from and where it goes.

    Args:
        source: `git`, `zip` or `existing`.
        root: the claim's mount point; for `existing` the claim that has the workspace.
        url, ref: of a git repository or a zip file; a ref is a branch, a tag or a full commit id.
        sub_path: for `existing`: the directory in the claim that is the workspace.
        sha256: for `zip`: the checksum that the file must have.
        revision: the user's word for "sync again": another value makes another request of the same source.
        secret: directory of the mounted Secret.
        timeout_s: for everything together.
    """

    source: str
    root: Path
    url: str = ""
    ref: str = ""
    sub_path: str = ""
    sha256: str = ""
    revision: str = ""
    secret: Path | None = None
    timeout_s: float = 600.0
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        """Raises:
        Refused: a field is missing, unknown to the source, or unacceptable.
        """
        for name in _UNUSED[self.source]:
            if getattr(self, name):
                raise Refused(f"the source {self.source} has no {name.replace('_', '-')}")
        if self.source == "git":
            GitSource(self.url, self.ref).check()
        elif self.source == "zip":
            check_url(self.url, ("https",))
        if self.sha256 and (len(self.sha256) != 64 or not set(self.sha256) <= _HEX):
            raise Refused(f"{show(self.sha256)} is not a SHA-256 in hexadecimal")
        parts_of(self.sub_path, self.limits)
        if not self.root.is_dir():
            raise Refused(f"there is no directory {self.root}", next_step="Mount the claim there")

    @property
    def fingerprint(self) -> str:
        """Equal for requests that ask for the same workspace."""
        return fingerprint(
            source=self.source,
            url=self.url,
            ref=self.ref,
            sub_path=self.sub_path,
            sha256=self.sha256.lower(),
            revision=self.revision,
        )


_UNUSED = {
    "git": ("sub_path", "sha256"),
    "zip": ("sub_path", "ref"),
    "existing": ("url", "ref", "sha256"),
}
