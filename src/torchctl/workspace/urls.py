"""Validates URLs and refs of users, and redacts secrets in texts."""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from .core import show
from .errors import Refused

__all__ = ["FULL_SHA", "Redactor", "check_address", "check_ref", "check_url", "origin"]

FULL_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[!-~]+\Z")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?\Z")
_SSH_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
_USERINFO = re.compile(r"(?<=://)[^/@\s'\"]*@")
_QUERY = re.compile(r"(?<=[^\s?])\?[^\s'\"]*")
_METADATA = frozenset({"fd00:ec2::254", "100.100.100.200"})
_NEXT = "Use a complete URL such as https://git.example.com/team/repo.git"


def check_url(url: str, schemes: Iterable[str]) -> SplitResult:
    """Parse a URL of one of the schemes.

    Raises:
        Refused: another scheme (file, ext, git, http, scp-like ...), credentials in the URL, an invalid host,
            characters outside of printable ASCII, or an address of a cloud's metadata service.
    """
    allowed = tuple(schemes)
    if not _URL.match(url) or len(url) > 2048:
        raise Refused(f"the URL {show(Redactor()(url))} is not one", next_step=_NEXT)
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError as error:
        raise Refused(f"the URL {show(Redactor()(url))} is not one: {error}", next_step=_NEXT) from None
    if split.scheme.lower() not in allowed:
        raise Refused(f"the scheme {show(split.scheme)} is not allowed here", next_step=f"Use {' or '.join(allowed)}")
    if split.password is not None or (split.username is not None and split.scheme != "ssh"):
        raise Refused("the URL has credentials in it", next_step="Put them in a Secret and name it in secretRef")
    if split.username is not None and not _SSH_USER.match(split.username):
        raise Refused(f"the user {show(split.username)} in the URL is not one")
    host = split.hostname or ""
    if port == 0 or not (_is_address(host) or _HOST.match(host)):
        raise Refused(f"the URL {show(Redactor()(url))} has no valid host", next_step=_NEXT)
    check_address(host)
    return split


def check_address(host: str) -> None:
    """Check that a host is no address of a metadata service.

    Raises:
        Refused: the host is an address that only a machine's metadata service has (link-local and similar ranges).
    """
    if _is_address(host):
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None) or address
        if mapped.is_link_local or mapped.is_unspecified or mapped.is_multicast or str(mapped) in _METADATA:
            raise Refused(f"the address {host} is not allowed as a source")


def check_ref(ref: str) -> str:
    """Check the name of a branch or tag, or a full commit id, by git's own rules (git-check-ref-format).

    Raises:
        Refused: it starts with '-', or git would not accept it as a name.
    """
    bad = (
        not ref
        or len(ref) > 255
        or ref.startswith(("-", "/", "."))
        or ref.endswith(("/", ".", ".lock"))
        or ref == "@"
        or any(part in ref for part in ("..", "@{", "//", "/.", ".lock/"))
        or any(c <= " " or c in "\x7f~^:?*[\\" for c in ref)
    )
    if bad:
        raise Refused(
            f"the ref {show(ref)} is not a name that git allows", next_step="Use a branch, a tag or a full commit id"
        )
    return ref


def origin(split: SplitResult) -> tuple[str, str, int]:
    """Return scheme, host and port, because credentials are for one origin only."""
    return split.scheme, (split.hostname or "").lower(), split.port or {"https": 443, "http": 80}.get(split.scheme, 0)


class Redactor:
    """Removes from a text the given secrets, and userinfo and query strings of URLs, which must not reach a log."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({s for s in secrets if s}, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"<Redactor secrets={len(self._secrets)}>"

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _QUERY.sub(_hidden, _USERINFO.sub("***@", text))


def _hidden(query: re.Match[str]) -> str:
    # The '=' is checked here: in the pattern it would cause quadratic time on a server's text with many '?'.
    return "?***" if "=" in query[0] else query[0]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
