"""`torchctl workspace serve`: runs the sync pod's archive server, for claims that only one node can mount.

`GET /archive/KEY` streams the tree as tar with Content-Length, an ETag (the digest) and single ranges, so that a client
can resume a broken download; `GET /readyz` tells if there is a workspace. There is nothing else: no listing, no write.
The pod network reaches beyond the namespace, so a client that does not know the key gets a 404.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import anyio.lowlevel
from aiohttp import web

from .copies import Listing, list_tree, tar_chunks
from .core import Limits
from .errors import WorkspaceError
from .marker import Marker, read_marker

__all__ = ["DIGEST", "MARKER_HEADER", "add_archive", "application", "running", "serve"]

DIGEST = "X-Workspace-Digest"
MARKER_HEADER = "X-Workspace-Marker"
_RANGE = re.compile(r"bytes=([0-9]{1,18})-\Z")
_SEND_TIMEOUT_S = 60.0


class _Archive:
    """The request handlers, and a listing of the tree that is cached while the marker stays the same."""

    def __init__(self, root: Path, limits: Limits, streams: int) -> None:
        self._root = root
        self._limits = limits
        self._streams = anyio.CapacityLimiter(streams)
        self._listed: tuple[Marker, Listing] | None = None

    async def archive(self, request: web.Request) -> web.StreamResponse:
        try:
            self._streams.acquire_nowait()
        except anyio.WouldBlock:
            return web.Response(status=503, headers={"Retry-After": "2"}, text="too many downloads at once\n")
        try:
            return await self._send(request)
        finally:
            self._streams.release()

    async def _send(self, request: web.Request) -> web.StreamResponse:
        try:
            listed = self._list()
        except WorkspaceError as error:
            return web.Response(status=503, headers={"Retry-After": "2"}, text=f"{error}\n")
        if listed is None:
            return web.Response(status=503, headers={"Retry-After": "2"}, text="no workspace yet\n")
        marker, listing = listed
        start = _start(request, marker)
        if start >= listing.size:
            return web.Response(status=416, headers={"Content-Range": f"bytes */{listing.size}"})
        response = web.StreamResponse(status=206 if start else 200, headers=_headers(marker, listing, start))
        response.content_length = listing.size - start
        await response.prepare(request)
        for chunk in tar_chunks(self._root, listing, start):
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                await response.write(chunk)
            await anyio.lowlevel.checkpoint()  # writes to a fast client never wait, so let the probes run
        await response.write_eof()
        return response

    def _list(self) -> tuple[Marker, Listing] | None:
        marker = read_marker(self._root)
        if marker is None:
            self._listed = None
        elif self._listed is None or self._listed[0] != marker:
            self._listed = (marker, list_tree(self._root, self._limits))
        return self._listed


def _start(request: web.Request, marker: Marker) -> int:
    """Return the offset to begin at: 0 unless the client has a part of this very workspace."""
    match = _RANGE.match(request.headers.get("Range", ""))
    return int(match[1]) if match and request.headers.get("If-Range") == f'"{marker.digest}"' else 0


def _headers(marker: Marker, listing: Listing, start: int) -> dict[str, str]:
    headers = {
        "Content-Type": "application/x-tar",
        "ETag": f'"{marker.digest}"',
        "Accept-Ranges": "bytes",
        DIGEST: marker.digest,
        MARKER_HEADER: marker.report(),
    }
    if start:
        headers["Content-Range"] = f"bytes {start}-{listing.size - 1}/{listing.size}"
    return headers


def add_archive(app: web.Application, root: Path, *, limits: Limits, streams: int, key: str) -> None:
    """Add the archive's route to an application."""
    path = f"/archive/{quote(key, safe='')}" if key else "/archive"
    app.router.add_get(path, _Archive(root, limits, streams).archive, allow_head=False)


def readiness(root: Path) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the handler that tells if there is a workspace."""

    async def readyz(request: web.Request) -> web.Response:
        try:
            marker = read_marker(root)
        except WorkspaceError as error:
            return web.Response(status=503, text=f"{error}\n")
        return web.Response(text="ok\n") if marker else web.Response(status=503, text="no workspace yet\n")

    return readyz


def application(root: Path, *, limits: Limits, streams: int = 16, key: str = "") -> web.Application:
    """Make the server as an aiohttp application with at most `streams` downloads at once; others are told to retry.

    Without a `key` the archive is at `/archive`, for everybody.
    """
    app = web.Application(client_max_size=1024)
    app.router.add_get("/readyz", readiness(root))
    add_archive(app, root, limits=limits, streams=streams, key=key)
    return app


@asynccontextmanager
async def running(
    app: web.Application, *, host: str | None, port: int, grace_s: float = 10, **options: Any
) -> AsyncIterator[int]:
    """Run a server as long as the context lasts, and yield its port; running requests then get `grace_s`.

    What is sent to it stays as it is: some kilobytes of zstd take 128 MiB to unpack, and anybody may send them.
    """
    options |= {"access_log": None, "auto_decompress": False, "shutdown_timeout": grace_s, "keepalive_timeout": 15}
    runner = web.AppRunner(app, **options)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=128).start()
        yield runner.addresses[0][1]
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


async def serve(root: Path, *, host: str | None, port: int, limits: Limits, streams: int = 16, key: str = "") -> None:
    """Serve until cancelled; then no new request is taken and running ones get ten seconds."""
    app = application(root, limits=limits, streams=streams, key=key)
    async with running(app, host=host, port=port):
        await anyio.sleep_forever()
