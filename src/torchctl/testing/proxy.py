"""A proxy in front of the API server that records requests and injects faults on demand.

It ends TLS with an authority of its own and speaks HTTP/1.1. Tests of crash safety cut a controller down at its
n-th write without the controller knowing of any test:

    async with FaultProxy(control_plane.connection()) as proxy:
        cut = proxy.cut(3, Moment.AFTER, then=kill_the_operator)
        ... run the operator over proxy.connection(user) until cut.exchange is set ...
        proxy.heal()
        ... run a new one, compare what it ends with ...
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.tls import TlsFiles
from torchctl.testing.certificates import Authority
from torchctl.testing.faults import (
    Answer,
    Cut,
    DropLines,
    Exchange,
    Fault,
    Interruption,
    Match,
    Moment,
    Stall,
    is_watch,
    is_write,
)
from torchctl.testing.kubeconfig import write_kubeconfig
from torchctl.testing.scratch import Scratch

__all__ = ["FaultProxy", "Moment"]

_LARGEST_LINE = 64 << 10
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host", "content-length"}
)
_NOT_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_ABORT = Interruption()

AnyFault = TypeVar("AnyFault", bound=Fault)


class FaultProxy:
    """Forwards requests to one API server and injects faults. `heal` ends all faults.

    Args:
        upstream: the API server; only its address and certificates are used, each request brings its own token.

    Attributes:
        exchanges: every request so far, in the order of arrival.
    """

    def __init__(self, upstream: Connection) -> None:
        self._upstream = upstream
        self._faults: list[Fault] = []
        self._down = False
        self._open: set[asyncio.Transport] = set()
        self.exchanges: list[Exchange] = []

    def __repr__(self) -> str:
        return f"<FaultProxy {len(self.exchanges)} requests{' down' if self._down else ''} {self._faults}>"

    async def __aenter__(self) -> Self:
        self._scratch = Scratch("torchctl-proxy-")
        self._directory = self._scratch.path
        tls = self._server_tls()
        self._server = server = _Server(
            self._handle, max_line_size=_LARGEST_LINE, max_field_size=_LARGEST_LINE, access_log=None
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls).start()
        self._port = self._runner.addresses[0][1]
        connector = aiohttp.TCPConnector(ssl=self._upstream.tls_files().context(), limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        # Else aiohttp sends a PUT or DELETE twice if the API server drops a kept connection.
        self._session._retry_connection = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._down = True
        for fault in self._faults:
            if isinstance(fault, Stall):
                fault.release()
        self.sever()
        await self._session.close()
        await self._runner.cleanup()
        self._scratch.remove()

    # How to reach it.

    @property
    def host(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca(self) -> Path:
        """The proxy's own authority, PEM."""
        return self._directory / "ca.crt"

    def connection(self, user: Connection) -> Connection:
        """Returns a user's connection through the proxy. Raises ValueError for a client certificate: TLS ends here."""
        if user.tls_files().certificate:
            raise ValueError("a client certificate cannot pass the proxy: use a token")
        return replace(user, host=self.host, tls=TlsFiles(ca=str(self.ca)))

    async def kubeconfig(self, user: Connection) -> Path:
        """Writes a kubeconfig for a user through the proxy, removed when the proxy ends."""
        header = await self.connection(user).authorization()
        token = {"token": (header or "").removeprefix("Bearer ")}
        path = self._directory / "kubeconfig"
        return write_kubeconfig(path, server=self.host, ca=self.ca, user=token, namespace=user.namespace)

    # What happened.

    @property
    def writes(self) -> list[Exchange]:
        """The requests that can change an object, in the order of arrival."""
        return [exchange for exchange in self.exchanges if is_write(exchange)]

    @property
    def is_down(self) -> bool:
        """True while a cut, or `down`, refuses everything."""
        return self._down

    # What goes wrong.

    def cut(
        self,
        number: int,
        moment: Moment = Moment.BEFORE,
        *,
        match: Match = is_write,
        then: Callable[[], Awaitable[None]] | None = None,
    ) -> Cut:
        """Takes the proxy down at the n-th matching request from now (the first is 1), at `moment`.

        `then` is awaited while nothing passes any more, all connections are aborted, and the proxy stays down until
        `heal`.
        """
        return self.add(Cut(number, moment, match, then))

    def stall(self, match: Match, moment: Moment = Moment.BEFORE) -> Stall:
        """Stalls matching requests until the fault's `release`."""
        return self.add(Stall(match, moment))

    def answer(
        self,
        status: int,
        *,
        match: Match,
        times: int | None = 1,
        reason: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Answers the next matching requests with this metav1.Status; they never reach the API server."""
        return self.add(Answer(status, match, times, reason=reason, headers=headers or {}))

    def drop_lines(self, drop: Callable[[bytes], bool], *, match: Match = is_watch) -> DropLines:
        """Drops lines of watches: events, bookmarks."""
        return self.add(DropLines(drop, match))

    def add(self, fault: AnyFault) -> AnyFault:
        """Adds any fault; the methods above are the common cases."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        self._faults.remove(fault)

    def sever(self) -> None:
        """Aborts all connections of clients, and accepts new ones."""
        for transport in tuple(self._open):
            transport.abort()
        self._open.clear()

    def down(self) -> None:
        """Aborts all connections, and every new request until `heal`."""
        self._down = True
        self.sever()

    def heal(self) -> None:
        """Removes every fault: stalled requests are forwarded, and the proxy is up again."""
        for fault in self._faults:
            if isinstance(fault, Stall):
                fault.release()
        self._faults.clear()
        self._down = False

    # Forwarding.

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            return web.Response()
        self._open = {open_ for open_ in self._open if not open_.is_closing()} | {transport}
        exchange = Exchange(len(self.exchanges) + 1, request.method, request.path, dict(request.query))
        self.exchanges.append(exchange)
        try:
            exchange.body = await request.content.read()
            if interruption := await self._ask(Moment.BEFORE, exchange):
                return _refuse(transport, interruption)
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._upgrade(request, exchange)
            return await self._forward(request, exchange)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            return _refuse(transport, _ABORT)

    async def _ask(self, moment: Moment, exchange: Exchange) -> Interruption | None:
        if self._down:
            return _ABORT
        for fault in tuple(self._faults):
            interruption = await fault.at(moment, exchange)
            if interruption and interruption.down:
                await self._go_down(fault)
            if interruption:
                return interruption
        return _ABORT if self._down else None

    async def _go_down(self, fault: Fault) -> None:
        self._down = True
        try:
            if isinstance(fault, Cut) and fault.then:
                await fault.then()
        finally:
            self.sever()

    async def _forward(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        url = self._upstream.host + request.raw_path
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        async with self._session.request(
            request.method,
            URL(url, encoded=True),
            headers=headers,
            data=exchange.body or None,
            skip_auto_headers=_NOT_ADDED,
        ) as answer:
            streams = is_watch(exchange) or exchange.query.get("follow") == "true"
            body = b"" if streams else await answer.read()
            exchange.status = answer.status
            if interruption := await self._ask(Moment.AFTER, exchange):
                if request.transport is None:
                    raise _gone()
                return _refuse(request.transport, interruption)
            headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            if not streams:
                return web.Response(status=answer.status, headers=headers, body=body)
            return await self._stream(request, exchange, answer, headers)

    async def _upgrade(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        """Carries a websocket: a pod's port, its exec or attach. A refusal passes without its text."""
        url = URL(self._upstream.host + request.raw_path, encoded=True)
        offered = [word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        headers = {name: value for name, value in request.headers.items() if not _is_of_the_handshake(name.lower())}
        try:
            async with self._session.ws_connect(url, protocols=offered, headers=headers, max_msg_size=0) as upstream:
                exchange.status = 101
                interruption = await self._ask(Moment.AFTER, exchange)
                if interruption and request.transport:
                    return _refuse(request.transport, interruption)
                socket = web.WebSocketResponse(protocols=offered, max_msg_size=0, timeout=0.1)
                await socket.prepare(request)
                await _both(upstream, socket)
                return socket
        except aiohttp.WSServerHandshakeError as refusal:
            exchange.status = refusal.status
            return web.Response(status=refusal.status)

    async def _stream(
        self,
        request: web.BaseRequest,
        exchange: Exchange,
        answer: aiohttp.ClientResponse,
        headers: Mapping[str, str],
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=headers)
        response.enable_chunked_encoding()
        await response.prepare(request)
        with self._server.feeding(request, answer.content):
            async for line in _lines(answer.content):
                if not any(fault.drops(exchange, line) for fault in self._faults):
                    await response.write(line)
        await response.write_eof()
        return response

    def _server_tls(self) -> ssl.SSLContext:
        authority = Authority("torchctl-proxy")
        pair = authority.server(["127.0.0.1", "localhost"])
        self.ca.write_bytes(authority.certificate)
        chain = self._directory / "server.pem"
        chain.write_bytes(pair.certificate + pair.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(chain)
        return context


class _Server(web.Server):
    """Tells what feeds a client when the client is gone: while the API server is silent, nothing else would show it."""

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], **options: Any) -> None:
        super().__init__(handler, **options)
        self._feeds: dict[web.RequestHandler, aiohttp.StreamReader] = {}

    @contextmanager
    def feeding(self, request: web.BaseRequest, content: aiohttp.StreamReader) -> Iterator[None]:
        """Lets reads of `content` raise ConnectionResetError once the client of `request` is gone."""
        if request.transport is None:
            raise _gone()
        client = request.protocol
        self._feeds[client] = content
        try:
            yield
        finally:
            del self._feeds[client]

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        if (content := self._feeds.get(handler)) is not None:
            content.set_exception(_gone())


def _gone() -> ConnectionResetError:
    return ConnectionResetError("the client is gone")


AnySocket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


def _is_of_the_handshake(header: str) -> bool:
    return header in _HOP_BY_HOP or header.startswith("sec-websocket-")


async def _both(upstream: AnySocket, client: AnySocket) -> None:
    """Carries messages both ways until one side has closed, and closes the other one in the same way."""
    carrying = {asyncio.create_task(_carry(upstream, client)), asyncio.create_task(_carry(client, upstream))}
    try:
        await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)


async def _carry(source: AnySocket, target: AnySocket) -> None:
    async for message in source:
        await target.send_bytes(message.data)
    await target.close(code=source.close_code or aiohttp.WSCloseCode.ABNORMAL_CLOSURE)


def _refuse(transport: asyncio.Transport, interruption: Interruption) -> web.Response:
    if not interruption.status:
        transport.abort()
    return web.Response(status=interruption.status or 502, body=interruption.body, headers=interruption.headers)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yields whole lines of any length until the stream ends."""
    rest = b""
    while chunk := await content.readany():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest
