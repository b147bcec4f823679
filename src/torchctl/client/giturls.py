"""Reads a git source as people write it: a URL, as git clone takes it, and a ref behind an @. Pure."""

import re
from typing import NamedTuple

__all__ = ["GitSource", "parse"]

_SHORT = re.compile(r"(?P<host>(?:[\w.-]+@)?[\w.-]+):(?P<path>(?!//)\S+)")
"""The short form of ssh, `git@host:team/code.git`."""
_LONG = re.compile(r"(?P<start>[a-zA-Z][a-zA-Z0-9+.-]*://[^/]*/?)(?P<path>.*)")
_REF = re.compile(r"(?<=[^/])@")


class GitSource(NamedTuple):
    """A repository, and what is checked out of it; empty for its HEAD."""

    url: str
    ref: str

    @property
    def name(self) -> str:
        """The repository's own name: `code` for https://host/team/code.git."""
        return self.url.rstrip("/").rpartition("/")[2].removesuffix(".git")


def parse(text: str) -> GitSource:
    """Splits URL[@ref]. The ref begins at the first @ of the path that ends a name, so it may contain slashes."""
    if (short := _SHORT.fullmatch(text)) and "://" not in text:
        text = f"ssh://{short['host']}/{short['path'].lstrip('/')}"
    long = _LONG.fullmatch(text)
    if long is None:
        return GitSource(text, "")
    path, *ref = _REF.split(long["path"], maxsplit=1)
    return GitSource(long["start"] + path, ref[0] if ref else "")
