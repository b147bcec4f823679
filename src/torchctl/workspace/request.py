"""The request to a sync pod, validated before anything is changed."""

from dataclasses import dataclass, field
from pathlib import Path

from .core import Limits, parts_of, show
from .errors import Refused
from .gitcommand import GitSource
from .marker import fingerprint
from .s3 import S3Source
from .urls import check_url

__all__ = ["FetchRequest"]

_HEX = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, kw_only=True)
class FetchRequest:
    """The source and the destination of a workspace.

    Args:
        source: `git`, `zip`, `s3` or `existing`.
        root: the claim's mount point; for `existing` the claim that has the workspace.
        url, ref: of a git repository, a zip file or a bucket's content; a ref is a branch, a tag or a full commit id.
        sub_path: for `existing`: the directory in the claim that is the workspace.
        revision: the revision that the workspace must have. For `git`, the commit to check out, instead of `ref`;
            for the others, a SHA-256 in hexadecimal, with or without the prefix `sha256:`, of the archive or, if
            there is none, of the tree. Another value makes another request of the same source.
        secret: directory of the mounted Secret.
        timeout_s: limit for the whole request.
    """

    source: str
    root: Path
    url: str = ""
    ref: str = ""
    sub_path: str = ""
    revision: str = ""
    secret: Path | None = None
    timeout_s: float = 600.0
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        """Validate the fields.

        Raises:
            Refused: a field is missing, unknown to the source, or unacceptable.
        """
        for name in _UNUSED[self.source]:
            if getattr(self, name):
                raise Refused(f"the source {self.source} has no {name.replace('_', '-')}")
        if self.source == "git":
            self.git.check()
        elif self.source == "s3":
            S3Source.parse(self.url)
        elif self.source == "zip":
            check_url(self.url, ("https",))
        if self.sha256 and (len(self.sha256) != 64 or not set(self.sha256) <= _HEX):
            raise Refused(
                f"the revision {show(self.revision)} is not a SHA-256 in hexadecimal",
                next_step=f"For source {self.source} volumes.workspace.revision is sha256: and 64 digits",
            )
        parts_of(self.sub_path, self.limits)
        if not self.root.is_dir():
            raise Refused(f"there is no directory {self.root}", next_step="Mount the claim there")

    @property
    def git(self) -> GitSource:
        return GitSource(self.url, self.revision or self.ref)

    @property
    def sha256(self) -> str:
        """The digest that the content must have, in hexadecimal; empty if any is accepted."""
        return "" if self.source == "git" else self.revision.removeprefix("sha256:").lower()

    @property
    def fingerprint(self) -> str:
        """Return a hash that is equal for requests of the same workspace."""
        return fingerprint(
            source=self.source,
            url=self.url,
            ref=self.ref,
            sub_path=self.sub_path,
            revision=self.sha256 or self.revision,
        )


_UNUSED = {
    "git": ("sub_path",),
    "zip": ("sub_path", "ref"),
    "s3": ("sub_path", "ref"),
    "existing": ("url", "ref"),
}
