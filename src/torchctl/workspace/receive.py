"""`torchctl workspace receive`: waits until somebody has uploaded a workspace, and ends with its marker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from aiohttp import web

from .byhand import ARCHIVE, Arrival, unpack_by_hand, wanted_marker
from .core import Limits
from .handout import check_directory
from .marker import Marker
from .receiver import READ_BUFFER, Receiver
from .staging import Staging
from .steps import deadline
from .store import Store

__all__ = ["receive"]

_POLL_S = 0.5
_CONFIRM_S = 5.0


async def receive(
    root: Path,
    *,
    port: int,
    token: str,
    timeout_s: float,
    limits: Limits,
    revision: str = "",
    store: Store | None = None,
    packed: bool = False,
) -> Marker:
    """Wait until the claim has its marker, whoever sets it: an upload, an archive copied by hand, or `fetch`.

    Listens on loopback only, which is where a port-forward arrives, so other pods do not reach it. Polls for the rest:
    network file systems do not report other machines' writes.

    Args:
        revision: the revision or digest that the workspace must have; empty: any.
        packed: nobody looks at files in the root, so an upload is one file there (see `packed`).

    Raises:
        Unreachable: nothing came in time.
        Refused: an archive that was copied by hand is not acceptable.
    """
    check_directory(root)
    Staging(root).finish()
    receiver = Receiver(root, token=token, limits=limits, revision=revision, store=store, packed=packed)
    what = f"waiting for the upload of the workspace{' ' + revision if revision else ''} to {root}"
    async with deadline(timeout_s, what), _listening(receiver, port):
        arrival = Arrival(root)
        while True:
            marker = wanted_marker(root, revision)
            if marker and not receiver.busy:
                await _confirmed(receiver)
                return marker
            if not receiver.busy and arrival.settled():
                with receiver.occupied(f"the {ARCHIVE} that was copied by hand"):
                    return await unpack_by_hand(root, limits=limits, revision=revision)
            with anyio.move_on_after(_POLL_S):
                await receiver.committed.wait()


async def _confirmed(receiver: Receiver) -> None:
    """Give a client whose connection was cut at the end some time to ask again how it ended."""
    if receiver.committed.is_set():
        with receiver.occupied("an upload that is done"), anyio.move_on_after(_CONFIRM_S):
            await receiver.confirmed.wait()


@asynccontextmanager
async def _listening(receiver: Receiver, port: int) -> AsyncIterator[None]:
    app = web.Application()
    app.add_routes(receiver.routes())
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        shutdown_timeout=2,
        keepalive_timeout=75,
        read_bufsize=READ_BUFFER,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=16).start()
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()
            await receiver.close()
