"""Limits the number and duration of HTTP connections from their first byte on, TLS handshake included."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
from aiohttp import web

from torchctl.runtime.certificates import Certificates

__all__ = ["Gate", "listen"]

STOP_S = 1.0
"""Seconds that requests in progress get to finish when the server stops."""


class Gate:
    """Counts the connections of a port, and cuts each of them when its time is over.

    If the port is full, the oldest connection is cut to make room. So a client that only holds connections shuts
    nobody out. A kubelet's probe in particular is answered long before it could be the oldest.
    """

    def __init__(self, limit: int, timeout_s: float) -> None:
        self.limit = limit
        self.timeout_s = timeout_s
        self._open: dict[object, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}

    def __contains__(self, who: object) -> bool:
        return who in self._open

    def admit(self, who: object, transport: asyncio.Transport) -> None:
        """Lets a connection in and starts its time."""
        while len(self._open) >= self.limit:
            oldest = next(iter(self._open))
            self._open[oldest][0].abort()
            self.leave(oldest)
        self._open[who] = transport, asyncio.get_running_loop().call_later(self.timeout_s, transport.abort)

    def leave(self, who: object) -> None:
        """Notes that a connection is over. Safe to call twice."""
        if who in self._open:
            self._open.pop(who)[1].cancel()


@asynccontextmanager
async def listen(
    http: web.Server, host: str | None, port: int, gate: Gate, certificates: Certificates | None = None
) -> AsyncIterator[int]:
    """Listens on `port` and yields the real one; with certificates, over TLS.

    Raises:
        OSError: The port is taken or may not be used.
    """
    if certificates is not None:
        certificates.current()  # log what is wrong now, not in the first handshake
    loop = asyncio.get_running_loop()
    handshakes: set[asyncio.Task[None]] = set()
    listener = await loop.create_server(lambda: _Door(http, gate, certificates, handshakes), host, port)
    try:
        yield int(listener.sockets[0].getsockname()[1])
    finally:
        listener.close()
        for handshake in handshakes:
            handshake.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*handshakes, return_exceptions=True)
            await http.shutdown(STOP_S)


class _Door(asyncio.Protocol):
    """A connection until HTTP begins on it."""

    def __init__(
        self, http: web.Server, gate: Gate, certificates: Certificates | None, handshakes: set[asyncio.Task[None]]
    ) -> None:
        self._http = http
        self._gate = gate
        self._certificates = certificates
        self._handshakes = handshakes
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._gate.admit(self, transport)
        if self._certificates is None:
            self._let_in(transport)
        else:
            task = asyncio.get_running_loop().create_task(self._shake_hands(transport, self._certificates))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def data_received(self, data: bytes) -> None:
        self._early += data  # came with the end of the handshake

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.leave(self)

    async def _shake_hands(self, transport: asyncio.Transport, certificates: Certificates) -> None:
        if transport.is_closing():  # cut since it was made: a handshake would wait for its own timeout
            return
        secure = None
        with suppress(Exception):  # whatever a client does here ends its own connection only
            secure = await asyncio.get_running_loop().start_tls(
                transport, self, certificates.current(), server_side=True
            )
        if secure is None:  # the connection was cut meanwhile, and start_tls did not raise
            transport.abort()
            self._gate.leave(self)
        elif self in self._gate:
            self._let_in(secure)

    def _let_in(self, transport: asyncio.Transport) -> None:
        connection = _Connection(self._http, self._gate.timeout_s, partial(self._gate.leave, self))
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._early:
            connection.data_received(self._early)


class _Connection(web.RequestHandler):
    """An aiohttp connection that reports its own end."""

    __slots__ = ("_leave",)

    def __init__(self, http: web.Server, keepalive_s: float, leave: partial[None]) -> None:
        super().__init__(http, loop=asyncio.get_running_loop(), keepalive_timeout=keepalive_s, lingering_time=0)
        self._leave = leave

    def connection_lost(self, exc: BaseException | None) -> None:
        self._leave()
        super().connection_lost(exc)
