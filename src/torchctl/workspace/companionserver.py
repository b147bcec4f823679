"""`torchctl workspace companion`: the sync pod's server for jobs whose code can change while they run.

On the pod network: the archive (as `serve`), and `POST /launcher/v1/KEY` for the launchers of the workers, each of
which always has one report waiting here for its order. On loopback, where a port-forward arrives: the receiver of later
trees, and what people may ask about the launchers. If workers have the claim itself mounted, there are no launchers.

    GET /v1/launchers     who has which tree, and who has not
    PUT /v1/launchers     before the commit of a tree: whether programs are started again with it
"""

import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import anyio
import msgspec
from aiohttp import web

from .answers import Handler, Stop, answered, in_thread
from .companion import Companion
from .companionlog import tell
from .core import STORE, Limits
from .inplace import note
from .marker import Marker
from .membership.core import Settings
from .membership.messages import VERSION, Report
from .receiver import READ_BUFFER, Receiver
from .serve import add_archive, readiness, running
from .staging import Staging
from .store import Store
from .wanted import Wish, read_target, write_wish

__all__ = ["Uploads", "application", "companion"]

MAX_REPORT = 16 * 1024


class Uploads(msgspec.Struct, frozen=True, kw_only=True):
    """Where later trees are received.

    Args:
        port: on loopback; 0 is any that is free.
        token: what clients must present.
        cache: keeps what was sent, for the next time; on the claim itself if it is None.
        cache_bytes: its size.
        in_place: workers have the claim mounted, so it is changed file by file.
    """

    port: int
    token: str
    cache: Path | None = None
    cache_bytes: int
    in_place: bool = False


class _Launchers:
    """The request handlers."""

    def __init__(self, companion: Companion, root: Path) -> None:
        self._companion = companion
        self._root = root
        self._has_workspace = readiness(root)
        self._decoder = msgspec.json.Decoder(Report)

    async def report(self, request: web.Request) -> web.Response:
        try:
            report = self._decoder.decode(await request.read())
        except msgspec.DecodeError as error:
            return web.json_response({"error": str(error), "version": VERSION}, status=400)
        order = await self._companion.exchange(report)
        return web.Response(body=msgspec.json.encode(order), content_type="application/json")

    async def state(self, request: web.Request) -> web.Response:
        return web.json_response(self._companion.state())

    async def wish(self, request: web.Request) -> web.Response:
        try:
            wish = msgspec.json.decode(await request.read(), type=Wish)
        except msgspec.DecodeError as error:
            raise Stop(400, f"the wish cannot be read: {error}") from None
        write_wish(self._root, wish)
        self._companion.committed()
        return web.Response(status=204)

    async def readyz(self, request: web.Request) -> web.Response:
        """Ready while no launcher runs an older tree than the claim has: the operator looks at that."""
        if self._companion.settled():
            return await self._has_workspace(request)
        return web.Response(status=503, text="workers run another revision\n")


def application(
    root: Path, companion: Companion, *, limits: Limits, streams: int = 16, key: str = ""
) -> web.Application:
    """Make the server for the pod network as an aiohttp application; only who knows the key gets an answer."""

    async def close(app: web.Application) -> None:
        companion.close()

    launchers = _Launchers(companion, root)
    path = f"/launcher/v{VERSION}/{quote(key, safe='')}"
    app = web.Application(client_max_size=MAX_REPORT)
    app.on_shutdown.append(close)
    app.router.add_get("/readyz", launchers.readyz)
    app.router.add_get(path, launchers.state, allow_head=False)
    app.router.add_post(path, launchers.report)
    add_archive(app, root, limits=limits, streams=streams, key=key)
    return app


@asynccontextmanager
async def receiving(root: Path, companion: Companion, uploads: Uploads, limits: Limits) -> AsyncIterator[int]:
    """Receive later trees on loopback as long as the context lasts; yield the port."""

    async def published(marker: Marker) -> None:
        companion.committed()

    store = Store(uploads.cache or root / STORE, max_bytes=uploads.cache_bytes)
    receiver = Receiver(
        root, token=uploads.token, limits=limits, store=store, published=published, in_place=uploads.in_place
    )
    launchers = _Launchers(companion, root)
    app = web.Application(client_max_size=MAX_REPORT)
    app.add_routes(receiver.routes())
    app.router.add_get("/v1/launchers", _bearer(uploads.token, launchers.state), allow_head=False)
    app.router.add_put("/v1/launchers", _bearer(uploads.token, launchers.wish))
    try:
        async with running(app, host="127.0.0.1", port=uploads.port, read_bufsize=READ_BUFFER) as port:
            yield port
    finally:
        await receiver.close()


def _bearer(token: str, handler: Callable[[web.Request], Awaitable[web.Response]]) -> Handler:
    """Demand the token, as the receiver does."""

    async def handle(request: web.Request) -> web.Response:
        shown = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(shown, f"Bearer {token}".encode()):
            raise Stop(401, "the token is not the one of this pod", "Look for the pod again: it may have been replaced")
        return await handler(request)

    return answered(handle)


async def companion(
    root: Path,
    *,
    host: str | None,
    port: int,
    limits: Limits,
    streams: int = 16,
    key: str,
    uploads: Uploads | None = None,
) -> None:
    """Serve until cancelled."""
    Staging(root).finish()
    settings = Settings()
    if uploads is not None and uploads.in_place:
        await in_thread(partial(note, root))  # before it is ready, so before there are workers
        settings = Settings(learn_s=0)  # of whom none has anything to report
    made = Companion(partial(read_target, root), time.monotonic, settings)
    app = application(root, made, limits=limits, streams=streams, key=key)
    async with running(app, host=host, port=port, handler_cancellation=True), anyio.create_task_group() as tasks:
        tasks.start_soon(tell, made)
        if uploads is None:
            await made.run()
        else:
            async with receiving(root, made, uploads, limits):
                await made.run()
