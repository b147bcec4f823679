"""A websocket to the API server: messages of bytes, each with a deadline, and an end that is told from a cut.

The peer of a pod's stream is not always ready to read: while a slow pod holds it up, it answers no ping. So pings only
keep proxies in between from closing an idle connection, and nobody waits for their answers; a vanished peer shows in
TCP (see `sockets`), a silent one in the deadlines of the reader.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp

from torchctl.runtime.cancellation import cancel
from torchctl.runtime.client.errors import Unavailable
from torchctl.runtime.client.mapping import mapped
from torchctl.runtime.client.requests import HttpRequest

__all__ = ["CLOSE_TIMEOUT_S", "PING_PERIOD_S", "WebSocket", "kept_alive", "pinged"]

PING_PERIOD_S = 20.0
"""Seconds between pings. Load balancers drop connections that are silent for 60 s, some for 30."""

CLOSE_TIMEOUT_S = 2.0
"""Seconds to wait for the peer's half of the closing handshake."""

NORMAL = aiohttp.WSCloseCode.OK


class WebSocket:
    """One websocket after its handshake.

    Attributes:
        protocol: The subprotocol that the server chose; empty if it chose none.
    """

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse[bool]", request: HttpRequest) -> None:
        self._socket = socket
        self._request = request
        self.protocol = socket.protocol or ""

    async def send(self, message: bytes, timeout_s: float | None) -> None:
        """Sends a message. Returns once the kernel has taken most of what was sent: a slow peer slows its caller.

        None as deadline waits for ever.

        Raises:
            Timeout: The peer took nothing for `timeout_s`. The connection is no longer usable.
            Unavailable: The connection broke.
        """
        with mapped(self._request):
            async with asyncio.timeout(timeout_s):
                await self._socket.send_bytes(message)

    async def receive(self, timeout_s: float | None) -> bytes | None:
        """Returns the next message, None once the peer has said that it is done. None as deadline waits for ever.

        Raises:
            Timeout: None came within `timeout_s`. The connection is no longer usable.
            Unavailable: The connection broke, or ended without a word.
        """
        with mapped(self._request):
            async with asyncio.timeout(timeout_s):
                message = await self._socket.receive()
        match message.type:
            case aiohttp.WSMsgType.BINARY | aiohttp.WSMsgType.TEXT:
                return message.data if isinstance(message.data, bytes) else str(message.data).encode()
            case aiohttp.WSMsgType.CLOSE if message.data == NORMAL:
                return None
        raise Unavailable(
            f"{self._request.path}: the connection broke: {_why(message.type, message.data, message.extra)}"
        )

    async def ping(self) -> None:
        with mapped(self._request):
            await self._socket.ping()

    async def close(self) -> None:
        """Says that we are done, and drops the connection."""
        with mapped(self._request), suppress(TimeoutError):
            # aiohttp's own deadline begins anew with each message that a peer still sends.
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._socket.close()


@asynccontextmanager
async def kept_alive(socket: WebSocket) -> AsyncGenerator[WebSocket]:
    """Pings the peer while the block runs, and closes the websocket at its end."""
    try:
        async with pinged(socket.ping, PING_PERIOD_S):
            yield socket
    finally:
        with suppress(Unavailable):
            await socket.close()


@asynccontextmanager
async def pinged(ping: Callable[[], Awaitable[None]], period_s: float) -> AsyncGenerator[None]:
    """Calls `ping` now and then while the block runs. A connection that broke shows to whoever reads it."""
    pings = asyncio.create_task(_ping(ping, period_s))
    try:
        yield
    finally:
        await cancel({pings})


async def _ping(ping: Callable[[], Awaitable[None]], period_s: float) -> None:
    with suppress(Unavailable):
        while True:
            await asyncio.sleep(period_s)
            await ping()


def _why(kind: aiohttp.WSMsgType, data: object, extra: str | None) -> str:
    match kind:
        case aiohttp.WSMsgType.CLOSE:
            return f"closed with {data} {extra or ''}".strip()
        case aiohttp.WSMsgType.ERROR:
            return f"{type(data).__name__}: {data}"
    return "it ended without a word"
