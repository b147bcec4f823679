"""Parses s3 URLs and the answers of S3 servers, and builds request URLs. Pure.

`s3://bucket/code.zip` is an archive (.zip, .tar, .tar.gz, .tgz) and `s3://bucket/team/code/` is a folder: every object
whose key has this prefix is a file of the workspace. Any other URL is an error, so that a forgotten slash never gives
an empty workspace. Keys are written without percent-encoding, as in AWS's own tools.
"""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from urllib.parse import quote, unquote_plus, urlencode

from .core import show
from .errors import Refused, WorkspaceError
from .secret import S3Access
from .urls import check_url

__all__ = ["Bucket", "Page", "S3Source", "StoredObject", "explain", "parse_page"]

_SCHEMES = ("https", "http")
_DEFAULT_REGION = "us-east-1"
_REGION = re.compile(r"[a-z0-9-]{1,64}\Z")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]\Z")
_ENDINGS = {".zip": "zip", ".tar": "tar", ".tar.gz": "tar.gz", ".tgz": "tar.gz"}


@dataclass(frozen=True)
class S3Source:
    """A bucket and a key in it, or a prefix of keys."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, url: str) -> "S3Source":
        """Parse an s3 URL.

        Raises:
            Refused: it is no s3 URL, or names neither a folder nor an archive of a known kind.
        """
        split = check_url(url, ("s3",))
        if split.query or split.fragment or split.username or split.port:
            raise Refused(
                "an s3 URL is s3://bucket/key, without '?', '#', user or port",
                next_step="Put the server into AWS_ENDPOINT_URL of the Secret that secretRef names",
            )
        if not _BUCKET.match(split.netloc):
            raise Refused(f"{show(split.netloc)} is not the name of a bucket")
        source = cls(split.netloc, split.path.removeprefix("/"))
        if not (source.is_folder or source.archive):
            raise Refused(
                f"{show(url)} names neither a folder nor an archive",
                next_step="End it with '/' for a folder, or name a .zip, .tar, .tar.gz or .tgz file",
            )
        return source

    @property
    def is_folder(self) -> bool:
        return not self.key or self.key.endswith("/")

    @property
    def archive(self) -> str:
        """The kind of archive: zip, tar, tar.gz; empty if it is none."""
        return next((kind for ending, kind in _ENDINGS.items() if self.key.lower().endswith(ending)), "")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True)
class Bucket:
    """The URL of a bucket: its own host name, or a path on the server."""

    base: str
    region: str

    @classmethod
    def of(cls, name: str, access: S3Access) -> "Bucket":
        """Build the URL of a bucket from the Secret's keys.

        Raises:
            Refused: AWS_ENDPOINT_URL, AWS_REGION or AWS_S3_ADDRESSING_STYLE is invalid.
        """
        region = access.region or _DEFAULT_REGION
        if not _REGION.match(region):
            raise Refused(f"AWS_REGION is {show(region)}, which is no region", next_step="Correct it in the Secret")
        if access.addressing not in ("", "auto", "path", "virtual"):
            raise Refused(
                f"AWS_S3_ADDRESSING_STYLE is {show(access.addressing)}", next_step="Use path, virtual or auto"
            )
        endpoint = access.endpoint.rstrip("/") or f"https://s3.{region}.amazonaws.com"
        split = check_url(endpoint, _SCHEMES)
        if split.query or split.fragment:
            raise Refused("AWS_ENDPOINT_URL has no '?' and no '#'", next_step="Correct it in the Secret")
        at_aws = not access.endpoint and "." not in name  # a wildcard certificate covers one label only
        if access.addressing == "virtual" or (access.addressing != "path" and at_aws):
            return cls(f"{split.scheme}://{name}.{split.netloc}{split.path}", region)
        return cls(f"{endpoint}/{name}", region)

    def object_url(self, key: str) -> str:
        return f"{self.base}/{quote(key, safe='/')}"

    def listing_url(self, prefix: str, token: str = "") -> str:
        """Return the URL of a listing page of at most 1000 objects."""
        query = {"continuation-token": token} if token else {}
        query |= {"encoding-type": "url", "list-type": "2", "prefix": prefix}
        return f"{self.base}/?{urlencode(query, quote_via=quote)}"


@dataclass(frozen=True)
class StoredObject:
    """An object in a listing."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True)
class Page:
    """A part of a listing; `token` asks for the next one, empty at the end."""

    objects: tuple[StoredObject, ...]
    token: str = ""


def parse_page(document: bytes) -> Page:
    """Read an answer to ListObjectsV2.

    Raises:
        Refused: the document is no such answer.
    """
    root = _xml(document)
    if root is None or _name(root) != "ListBucketResult":
        raise Refused("the server does not list objects as S3 does", next_step="Check AWS_ENDPOINT_URL in the Secret")
    encoded = _text(root, "EncodingType") == "url"
    objects = [_object(item, encoded=encoded) for item in root if _name(item) == "Contents"]
    more = _text(root, "IsTruncated") == "true"
    token = _text(root, "NextContinuationToken") if more else ""
    if more and not token:
        raise Refused("the server's list of objects breaks off")
    return Page(tuple(objects), token)


def _object(item: ElementTree.Element, *, encoded: bool) -> StoredObject:
    key, size = _text(item, "Key"), _text(item, "Size")
    if not size.isdecimal() or len(size) > 18:
        raise Refused(f"the server lists {show(key)} with the size {show(size)}")
    return StoredObject(unquote_plus(key) if encoded else key, int(size), _text(item, "ETag"))


_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the Secret that secretRef names"
_MEANINGS = {
    "NoSuchBucket": ("there is no such bucket", "Check volumes.workspace.url, and AWS_ENDPOINT_URL in the Secret"),
    "NoSuchKey": ("there is no such object", "Check volumes.workspace.url"),
    "InvalidAccessKeyId": ("the server does not know the access key", f"Check {_KEYS}"),
    "SignatureDoesNotMatch": ("the server refused the signature", f"Check {_KEYS}"),
    "ExpiredToken": ("the session token has expired", "Renew the keys in the Secret that secretRef names"),
    "InvalidToken": ("the server refused the session token", "Renew the keys in the Secret that secretRef names"),
    "RequestTimeTooSkewed": ("the node's clock is wrong", "Have the node's time corrected"),
    "AccessDenied": ("the server refused access", "Give the keys in the Secret s3:GetObject and s3:ListBucket"),
    "PermanentRedirect": ("the bucket is in another region", "Set AWS_REGION in the Secret"),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "Set AWS_REGION in the Secret"),
}
_UNKNOWN = ("", "Check volumes.workspace.url, and AWS_ENDPOINT_URL and the keys in the Secret that secretRef names")


def explain(shown: str, status: int, document: bytes, *, region: str = "", signed: bool = True) -> WorkspaceError:
    """Return the error for an unsuccessful answer.

    Args:
        region: the region of the bucket according to the server.
        signed: the request had credentials.
    """
    root = _xml(document)
    code = _text(root, "Code") if root is not None and _name(root) == "Error" else ""
    elsewhere = region or (_text(root, "Region") if root is not None else "")
    by_status = {301: "PermanentRedirect", 403: "AccessDenied"} | ({} if code else {404: "NoSuchKey"})
    meaning, step = _MEANINGS.get(code) or _MEANINGS.get(by_status.get(status, "")) or _UNKNOWN
    if "another region" in meaning and _REGION.match(elsewhere):
        step = f"Set AWS_REGION to {elsewhere} in the Secret"
    if meaning == _MEANINGS["AccessDenied"][0] and not signed:
        step = "Name a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in volumes.workspace.secretRef"
    answered = f"the server answered {status}" + (f" {show(code, 60)}" if code else "")
    said = f"{meaning}, {answered}" if meaning else answered
    return Refused(f"cannot fetch {shown}: {said}", next_step=step)


def _xml(document: bytes) -> ElementTree.Element | None:
    if b"<!DOCTYPE" in document:  # S3 sends none, and entities can blow up a small document
        return None
    try:
        return ElementTree.fromstring(document)
    except ElementTree.ParseError:
        return None


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: ElementTree.Element, name: str) -> str:
    return next((child.text or "" for child in element if _name(child) == name), "")
