"""Fetches an archive or a folder from an S3 server, with signed requests and the downloader for web servers."""

from collections.abc import AsyncIterator, Generator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import aiohttp

from .ahead import Ahead
from .core import Admitted, Guard, Limits, Member, parts_of, show
from .download import download, session, tls
from .errors import Refused, Unreachable, WorkspaceError
from .s3 import Bucket, Page, S3Source, StoredObject, explain, parse_page
from .s3sign import signature
from .secret import Secret
from .steps import drive
from .tars import unpack_tar
from .tree import CHUNK
from .unpack import Unpacker
from .zips import unpack_zip

__all__ = ["fetch_s3"]

_MAX_PAGE = 8 * 2**20
_REGION_HEADER = "x-amz-bucket-region"


async def fetch_s3(
    source: S3Source, target: Path, scratch: Path, *, secret: Secret, limits: Limits, sha256: str = ""
) -> str:
    """Put an archive's content, or a folder, into `target` (empty); `scratch` holds the downloads meanwhile.

    Args:
        sha256: hexadecimal; when given, the archive must have it.

    Returns:
        The SHA-256 of the archive, hexadecimal; empty for a folder, which is not a single file.

    Raises:
        Refused: URL, credentials or content are not acceptable; the message says which.
        Unreachable: the server failed after a few tries, or the source changed meanwhile.
    """
    server = _S3Server(Bucket.of(source.bucket, secret.s3), secret)
    async with session(tls(secret.ca)) as http:
        if source.is_folder:
            await _folder(http, server, source, target, scratch, limits)
            return ""
        file = scratch / "archive"
        url = server.bucket.object_url(source.key)
        checksum = await download(http, server, url, file, max_bytes=limits.max_bytes, sha256=sha256)
    unpack = (
        unpack_zip(file, target, limits)
        if source.archive == "zip"
        else unpack_tar(file, target, limits, gzipped=source.archive == "tar.gz")
    )
    await drive(unpack)
    return checksum


class _S3Server:
    """A bucket's server. Redirects are not followed: a bucket in another region is an error that names the region."""

    schemes = ("https", "http")
    redirects = 0
    condition = "If-Match"

    def __init__(self, bucket: Bucket, secret: Secret) -> None:
        self.bucket = bucket
        self._secret = secret

    def shown(self, text: str) -> str:
        return self._secret.redactor()(text)

    def headers(self, url: str, *, home: bool) -> Mapping[str, str]:
        return signature(url, self._secret.s3, self.bucket.region, datetime.now(UTC))

    def refusal(self, shown: str, response: aiohttp.ClientResponse, body: bytes) -> WorkspaceError:
        region = response.headers.get(_REGION_HEADER, "")
        return explain(shown, response.status, body, region=region, signed=bool(self._secret.s3.access_key_id))


async def _folder(
    http: aiohttp.ClientSession, server: _S3Server, source: S3Source, target: Path, scratch: Path, limits: Limits
) -> None:
    guard, downloads, found = Guard(limits), Ahead(scratch), 0
    with Unpacker(target, Admitted()) as unpacker:
        try:
            async for stored in _listed(http, server, source, scratch / "listing.xml"):
                member = _member(source, stored, limits)
                if member is None:
                    continue
                found += 1
                for directory in _admit(guard, member):
                    unpacker.add(directory)
                if member.kind == "file":
                    while not downloads.has_room(member):
                        await _write(unpacker, *await downloads.take())
                    downloads.begin(member, partial(_object, http, server, stored))
            while downloads:
                await _write(unpacker, *await downloads.take())
        finally:
            await downloads.close()
        unpacker.close()
    if not found:
        raise Refused(f"there are no objects below {source}", next_step="Check volumes.workspace.url")


async def _listed(
    http: aiohttp.ClientSession, server: _S3Server, source: S3Source, file: Path
) -> AsyncIterator[StoredObject]:
    token = ""
    while True:
        await download(http, server, server.bucket.listing_url(source.key, token), file, max_bytes=_MAX_PAGE)
        page = _page(file)
        for stored in page.objects:
            yield stored
        token = page.token
        if not token:
            return


def _page(file: Path) -> Page:
    return parse_page(file.read_bytes())


def _member(source: S3Source, stored: StoredObject, limits: Limits) -> Member | None:
    """Return the file or, if the key ends in a slash, the directory for an object; None for the folder itself."""
    name = stored.key.removeprefix(source.key)
    if not stored.key.startswith(source.key):
        raise Refused(f"the server lists {show(stored.key)}, which is not below {source}")
    parts = parts_of(name, limits)
    if not parts:
        return None
    return Member(parts, "directory", mode=0o755) if name.endswith("/") else Member(parts, "file", size=stored.size)


def _admit(guard: Guard, member: Member) -> list[Member]:
    """Check a member before it is asked for, and return the directories that are to be made for it."""
    parents = [Member(parts, "directory", mode=0o755) for parts in guard.admit(member)]
    guard.spend(member.size)
    return [*parents, member] if member.kind == "directory" else parents


async def _object(http: aiohttp.ClientSession, server: _S3Server, stored: StoredObject, file: Path) -> None:
    """Download an object. What is a little larger than it was listed arrives, to be named as changed."""
    url, most = server.bucket.object_url(stored.key), stored.size + CHUNK
    await download(http, server, url, file, max_bytes=most, etag=stored.etag)


async def _write(unpacker: Unpacker, member: Member, file: Path) -> None:
    unpacker.add(member)
    await drive(_append(unpacker, file, member))


def _append(unpacker: Unpacker, file: Path, member: Member) -> Generator[None, None, None]:
    if file.stat().st_size != member.size:
        raise Unreachable(f"{show(member.path)} was changed while it was fetched")
    with file.open("rb") as content:
        while chunk := content.read(CHUNK):
            unpacker.write(chunk)
            yield
    file.unlink()
