"""The receiver's HTTP interface: takes a tree from a client and publishes it (docs/design/workspace-channel.md).

    GET    /v1/state                 limits, and what is published
    PUT    /v1/trees/ID              the manifest, whose SHA-256 is ID (none: an earlier one); answers what is missing
    GET    /v1/trees/ID              how far it is
    PATCH  /v1/trees/ID              content from the offset in `Upload-Offset` on
    POST   /v1/trees/ID/commit       publish; 202 as long as it takes
    DELETE /v1/trees/ID              give up, or confirm that the answer to the commit has arrived

One tree at a time. A connection may be cut anywhere: the client asks for the offset and goes on. A newer connection for
the same tree replaces an older one, which may not know yet that it is dead. A silent upload gives way to another.
"""

import asyncio
import hashlib
import hmac
import re
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
from aiohttp import web

from .answers import Handler, Stop, answered, body, in_thread
from .core import Limits
from .errors import Refused, Unexplained, WorkspaceError
from .frames import ENCODINGS
from .incoming import Incoming
from .manifest import EMPTY
from .marker import Marker, read_marker
from .program import meaning
from .staging import Staging
from .store import Store

__all__ = ["OFFSET", "READ_BUFFER", "VERSION", "Receiver", "Upload"]

VERSION = 1
OFFSET = "Upload-Offset"
READ_BUFFER = 1 << 19
"""Bytes that the server should read ahead (`read_bufsize` of the runner): larger pieces are faster to write."""

_TREE = re.compile(r"[0-9a-f]{64}\Z")
_OFFSET = re.compile(r"[0-9]{1,18}\Z")
_SILENT_S = 30.0
_ANSWER_S = 15.0
_MANIFEST_S = 600.0
_MAX_MANIFEST = 64 * 2**20


class Upload:
    """The upload that is under way. `sender` handles the connection that sends at the moment."""

    def __init__(self, tree: str) -> None:
        self.tree = tree
        self.incoming: Incoming | None = None
        self.sender: asyncio.Task[object] | None = None
        self.commit: asyncio.Task[None] | None = None
        self.touched = time.monotonic()

    async def take_over(self) -> None:
        """End an earlier connection of this upload: the caller's is newer."""
        earlier, self.sender = self.sender, asyncio.current_task()
        if earlier is not None and earlier is not self.sender and not earlier.done():
            earlier.cancel()
            try:
                await asyncio.wait([earlier])
            except asyncio.CancelledError:
                await asyncio.wait([earlier])  # whoever takes over from this one waits for it, and so for both
                raise
        self.touched = time.monotonic()

    async def abandon(self) -> None:
        await self.take_over()
        incoming, self.incoming = self.incoming, None
        if incoming:
            await in_thread(incoming.abandon)

    @property
    def silent(self) -> bool:
        return not self.commit and time.monotonic() - self.touched > _SILENT_S

    def progress(self) -> dict[str, object]:
        incoming = self.incoming
        found: dict[str, object] = {"tree": self.tree, "state": "committing" if self.commit else "receiving"}
        return found | ({"offset": incoming.offset, "size": incoming.size} if incoming else {})


class Receiver:
    """Receives trees for one root. Mount `routes()`, and await `close()` at the end.

    Args:
        token: what clients must present; it is compared in constant time.
        revision: the revision or digest that the tree must have; empty: any.
        store: keeps what is sent, for the next upload.
        published: called after each commit, before the client gets the answer.
        in_place: workers have the root mounted, so it is changed file by file.
        packed: nobody looks at files in the root, so a tree is one file there (see `packed`).
    """

    def __init__(
        self,
        root: Path,
        *,
        token: str,
        limits: Limits,
        revision: str = "",
        store: Store | None = None,
        published: Callable[[Marker], Awaitable[None]] | None = None,
        in_place: bool = False,
        packed: bool = False,
    ) -> None:
        if not token:
            raise ValueError("a receiver without a token would be open to everybody")
        self.confirmed = anyio.Event()
        self.committed = anyio.Event()
        self._token = token
        self._limits = limits
        self._revision = revision.removeprefix("sha256:")
        self._store = store
        self._published = published
        self._root = root
        self._in_place = in_place
        self._packed = packed
        self._disk = asyncio.Lock()
        self._upload: Upload | None = None
        self._occupied = ""
        self._failed: tuple[str, WorkspaceError] | None = None

    def __repr__(self) -> str:
        return f"<Receiver {self._root} {self._upload.tree[:12] if self._upload else 'idle'}>"

    @property
    def busy(self) -> bool:
        return self._upload is not None

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for a server with `auto_decompress=False`; it should have `read_bufsize=READ_BUFFER`."""
        tree = "/v1/trees/{tree}"
        return [
            web.get("/v1/state", self._allowed(self._state)),
            web.put(tree, self._allowed(self._put)),
            web.get(tree, self._allowed(self._get)),
            web.patch(tree, self._allowed(self._patch)),
            web.post(f"{tree}/commit", self._allowed(self._commit)),
            web.delete(tree, self._allowed(self._delete)),
        ]

    @contextmanager
    def occupied(self, by: str) -> Iterator[None]:
        """Refuse uploads while something else fills the root."""
        self._occupied = by
        try:
            yield
        finally:
            self._occupied = ""

    async def close(self) -> None:
        """Wait for a commit that has begun; give up an upload that has not come so far."""
        upload, self._upload = self._upload, None
        if upload and upload.commit:
            await asyncio.wait([upload.commit])
        elif upload:
            await upload.abandon()

    def _allowed(self, handler: Callable[[web.Request], Awaitable[web.Response]]) -> Handler:
        """Demand the token, and turn errors into answers."""
        wanted = f"Bearer {self._token}".encode()

        async def handle(request: web.Request) -> web.Response:
            shown = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(shown, wanted):
                raise Stop(
                    401, "the token is not the one of this pod", "Look for the pod again: it may have been replaced"
                )
            if not _TREE.match(request.match_info.get("tree", "0" * 64)):
                raise Stop(404, "a tree is named by the SHA-256 of its manifest")
            return await handler(request)

        return answered(handle)

    async def _state(self, request: web.Request) -> web.Response:
        limits = {"max_bytes": self._limits.max_bytes, "max_entries": self._limits.max_entries}
        marker = read_marker(self._root)
        return web.json_response(
            {
                "version": VERSION,
                "revision": self._revision,
                "published": marker.digest if marker else "",
                "upload": self._upload.progress() if self._upload else None,
                "encodings": ENCODINGS,
                "limits": limits | {"max_path": self._limits.max_path, "max_manifest": _MAX_MANIFEST},
            }
        )

    async def _put(self, request: web.Request) -> web.Response:
        tree = request.match_info["tree"]
        if marker := self._has(tree):
            return web.json_response(_done(marker) | {"missing": []})
        self._check_free(tree)
        upload = self._upload
        if upload is None or upload.tree != tree or upload.incoming is None:
            upload = await self._begin(request, tree, upload)
        assert upload.incoming is not None
        return web.json_response(upload.progress() | {"missing": upload.incoming.missing})

    async def _begin(self, request: web.Request, tree: str, earlier: Upload | None) -> Upload:
        """Take the manifest in place of an upload that is silent, or has not come so far."""
        mine = self._upload = Upload(tree)
        mine.sender = asyncio.current_task()
        self._failed = None
        if earlier:
            await earlier.abandon()
        try:
            async with self._disk:
                staging = Staging(self._root, in_place=self._in_place)
                await in_thread(partial(staging.open, keep=True))
                manifest = staging.scratch / "manifest"
                if request.can_read_body or tree == EMPTY.hex():  # the manifest of no files has no bytes
                    await _take_manifest(request, tree, manifest)
                else:
                    await in_thread(partial(self._recall, tree, manifest))
                mine.incoming = await in_thread(
                    partial(
                        Incoming,
                        tree,
                        manifest,
                        staging,
                        limits=self._limits,
                        store=self._store,
                        packed=self._packed,
                    )
                )
        except BaseException:
            if self._upload is mine:
                self._upload = None
            raise
        finally:
            mine.sender = None
            mine.touched = time.monotonic()
        return mine

    def _recall(self, tree: str, manifest: Path) -> None:
        """Take the manifest of a tree that was sent before from the store."""
        if not (self._store and self._store.recall(tree, manifest)):
            raise Stop(
                404,
                f"the job does not have the files of tree {tree[:12]} (any more)",
                "Check out that state of the directory and use sync",
            )

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._progress(request.match_info["tree"]))

    async def _patch(self, request: web.Request) -> web.Response:
        upload, incoming = self._find(request.match_info["tree"])
        await upload.take_over()
        offset = request.headers.get(OFFSET, "")
        if upload.commit or not _OFFSET.match(offset) or int(offset) != incoming.offset:
            raise Stop(409, f"the offset is {incoming.offset}", code="offset", more=upload.progress())
        try:
            async for chunk in body(request):
                await in_thread(partial(incoming.feed, chunk))
                upload.touched = time.monotonic()
        except (WorkspaceError, OSError) as error:
            await self._fail(upload, error)
            raise
        finally:
            if upload.sender is asyncio.current_task():
                upload.sender = None
        return web.json_response(upload.progress())

    async def _commit(self, request: web.Request) -> web.Response:
        tree = request.match_info["tree"]
        if not self._has(tree):
            upload, incoming = self._find(tree)
            if incoming.offset < incoming.size:
                raise Stop(
                    409, f"{incoming.size - incoming.offset} bytes are missing", code="offset", more=upload.progress()
                )
            if upload.commit is None:
                await upload.take_over()
                upload.sender = None
                upload.commit = asyncio.create_task(self._publish(upload, incoming))
            await asyncio.wait([upload.commit], timeout=_ANSWER_S)
        found = self._progress(tree)
        return web.json_response(found, status=200 if found["state"] == "published" else 202)

    async def _publish(self, upload: Upload, incoming: Incoming) -> None:
        try:
            marker = await in_thread(incoming.finish)
            if self._published:
                await self._published(marker)
            self._upload = None
            self.committed.set()
        except Exception as error:
            await self._fail(upload, error)

    async def _delete(self, request: web.Request) -> web.Response:
        tree = request.match_info["tree"]
        if self._upload and self._upload.tree == tree:
            if self._upload.commit:
                raise Stop(409, "the tree is being published", code="busy")
            await self._upload.abandon()
            self._upload = None
        elif self._has(tree):
            self.confirmed.set()
        return web.Response(status=204)

    async def _fail(self, upload: Upload, error: Exception) -> None:
        """End an upload that cannot go on; whoever asks for it is told why."""
        if not isinstance(error, WorkspaceError | OSError):
            traceback.print_exception(error, file=sys.stderr)
            error = Unexplained(f"{type(error).__name__}: {error}")
        if self._upload is upload:
            self._failed = (upload.tree, meaning(error) if isinstance(error, OSError) else error)
            self._upload = None
        if upload.incoming:
            incoming, upload.incoming = upload.incoming, None
            async with self._disk:  # the next upload has the same staging area
                await in_thread(incoming.abandon)

    def _has(self, tree: str) -> Marker | None:
        if self._upload and self._upload.tree == tree:
            return None  # the marker is there a moment before the commit has ended
        marker = read_marker(self._root)
        return marker if marker and marker.digest == f"sha256:{tree}" else None

    def _find(self, tree: str) -> tuple[Upload, Incoming]:
        if self._failed and self._failed[0] == tree:
            raise self._failed[1]
        if self._upload is None or self._upload.tree != tree or self._upload.incoming is None:
            raise Stop(410, "this upload is not known (any more)", "Send the manifest again", code="gone")
        return self._upload, self._upload.incoming

    def _progress(self, tree: str) -> dict[str, object]:
        if marker := self._has(tree):
            return _done(marker)
        return self._find(tree)[0].progress()

    def _check_free(self, tree: str) -> None:
        if self._revision and self._revision != tree:
            raise Refused(
                f"the job waits for the revision {self._revision}, and this tree is sha256:{tree}",
                next_step="Send that tree, or update volumes.workspace.revision",
            )
        if self._occupied:
            raise Stop(409, f"the workspace is being filled by {self._occupied}", "Wait until it is done", code="busy")
        if (upload := self._upload) and upload.tree != tree and not upload.silent:
            size = f"{upload.incoming.offset} of {upload.incoming.size} bytes" if upload.incoming else "beginning"
            raise Stop(
                409,
                f"another upload is under way (tree {upload.tree[:12]}, {size})",
                "Wait until it is done, or half a minute if it was given up",
                code="busy",
            )


def _done(marker: Marker) -> dict[str, object]:
    tree = marker.digest.removeprefix("sha256:")
    return {
        "tree": tree,
        "state": "published",
        "revision": marker.revision,
        "bytes": marker.bytes,
        "files": marker.files,
        "offset": 0,
        "size": 0,
    }


async def _take_manifest(request: web.Request, tree: str, path: Path) -> None:
    found, size = hashlib.sha256(), 0
    begun = time.monotonic()
    with path.open("xb") as file:
        async for chunk in body(request):
            if time.monotonic() - begun > _MANIFEST_S:
                raise Stop(408, f"the manifest took more than {_MANIFEST_S:g} s", "Leave out more files", code="idle")
            size += len(chunk)
            if size > _MAX_MANIFEST:
                raise Refused(f"the manifest has more than {_MAX_MANIFEST} bytes", next_step="Leave out more files")
            found.update(chunk)
            file.write(chunk)
    if found.hexdigest() != tree:
        raise Refused("the manifest does not have the SHA-256 that names it", next_step="Send it again")
