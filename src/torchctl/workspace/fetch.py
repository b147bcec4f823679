"""`torchctl workspace fetch`: copies a source onto a claim, once, however often it is run."""

import errno
from collections.abc import Mapping

from .core import PACK, parts_of
from .errors import Refused
from .git import fetch_git
from .marker import Marker, read_marker, write_marker
from .request import FetchRequest
from .s3 import S3Source
from .secret import Secret, load_secret
from .staging import Staging
from .steps import deadline, drive
from .tree import digest
from .zips import unpack_zip

__all__ = ["fetch"]


async def fetch(request: FetchRequest, *, environ: Mapping[str, str]) -> Marker:
    """Fill the claim and write its marker; a claim that already has this request's workspace is left alone.

    A crash at any point leaves no marker, and the next call starts clean.

    Raises:
        Refused, Unreachable: see `errors`; the claim has no marker then.
    """
    request.check()
    async with deadline(request.timeout_s, f"fetching the workspace ({request.source})"):
        if request.source == "existing":
            return await _adopt(request)
        staging = Staging(request.root)
        present = read_marker(request.root)
        if present is not None and present.request == request.fingerprint:
            staging.discard()
            return present
        secret = load_secret(request.secret)
        staging.open()
        archive = await _fill(request, staging, secret, environ)
        summary = await drive(digest(staging.tree, request.limits))
        if not archive:
            _expect(request, summary.digest)
        marker = Marker(
            revision=archive or summary.digest,
            digest=summary.digest,
            bytes=summary.bytes,
            files=summary.files,
            source=request.source,
            request=request.fingerprint,
        )
        staging.publish(marker)
        return marker


async def _fill(request: FetchRequest, staging: Staging, secret: Secret, environ: Mapping[str, str]) -> str:
    """Fetch into the staging area. Returns the commit or the archive's digest; empty if only the tree has one."""
    if request.source == "git":
        return await fetch_git(
            request.git, staging.tree, staging.scratch, secret=secret, limits=request.limits, environ=environ
        )
    # imported here because aiohttp takes half of the program's start-up time, and git does not need it
    checksum = await (_fill_s3 if request.source == "s3" else _fill_zip)(request, staging, secret)
    return f"sha256:{checksum}" if checksum else ""


async def _fill_zip(request: FetchRequest, staging: Staging, secret: Secret) -> str:
    from .download import WebServer, download, session, tls

    archive, limits = staging.scratch / "workspace.zip", request.limits
    async with session(tls(secret.ca)) as http:
        checksum = await download(
            http, WebServer(secret), request.url, archive, max_bytes=limits.max_bytes, sha256=request.sha256
        )
    await drive(unpack_zip(archive, staging.tree, limits))
    return checksum


async def _fill_s3(request: FetchRequest, staging: Staging, secret: Secret) -> str:
    from .s3fetch import fetch_s3

    source = S3Source.parse(request.url)
    return await fetch_s3(
        source, staging.tree, staging.scratch, secret=secret, limits=request.limits, sha256=request.sha256
    )


def _expect(request: FetchRequest, found: str) -> None:
    if request.sha256 and found != f"sha256:{request.sha256}":
        raise Refused(
            f"the workspace has the digest {found}, not sha256:{request.sha256}",
            next_step="Update volumes.workspace.revision, or find out who changed the source",
        )


async def _adopt(request: FetchRequest) -> Marker:
    """Digest and mark a claim that a user filled. Writes only the marker, and nothing if the claim is read-only."""
    root = request.root
    for part in parts_of(request.sub_path, request.limits):
        root = root / part
        if root.is_symlink() or not root.is_dir():
            raise Refused(f"the claim has no directory {request.sub_path}", next_step="Check volumes.workspace.subPath")
    if (root / PACK).exists():
        raise Refused(
            f"the claim has the code of a job as one file, {PACK}",
            next_step="Send the directory to the job that is to have it, or remove that file if those beside it are to "
            "take its place",
        )
    summary = await drive(digest(root, request.limits))
    _expect(request, summary.digest)
    marker = Marker(
        revision=summary.digest,
        digest=summary.digest,
        bytes=summary.bytes,
        files=summary.files,
        source=request.source,
        request=request.fingerprint,
    )
    try:
        write_marker(root, marker)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
    return marker
