"""The only module that talks to the API server over the network. It raises only errors of our own tree.

- Every exchange has a deadline. A vanished peer is detected within 30 s (see `sockets`). A silent watch is detected by
  its reader, because each `readline` has a deadline of its own.
- Watches, requests and the Lease have separate connections, so that many watches never starve a request, and many slow
  writes never cost the leadership.
- Nothing is sent twice here, with two exceptions in which the server did nothing the first time: a 401 is followed by
  one attempt with fresh credentials, and a failed TLS handshake by one with newly read certificate files.
"""

import asyncio
import os
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
import anyio
import anyio.lowlevel
from multidict import CIMultiDict
from yarl import URL

from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.exchange import (
    ByteStream,
    Gate,
    HostMetrics,
    HttpResponse,
    RequestMetrics,
    UpgradeRefused,
)
from torchctl.runtime.client.mapping import mapped
from torchctl.runtime.client.proxies import proxy_for
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.client.sockets import open_socket
from torchctl.runtime.client.tls import TlsContexts
from torchctl.runtime.client.websocket import CLOSE_TIMEOUT_S, WebSocket, kept_alive
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.settings import ClientSettings

__all__ = ["AiohttpTransport"]

T = TypeVar("T", bound="_Answer")

MAX_URGENT = 2
"""The number of connections for the Lease."""

MAX_LINE = 64 * 2**20
"""The maximum bytes of a watch line; etcd holds objects of up to 1.5 MiB."""


class AiohttpTransport:
    """HTTP/1.1 over aiohttp, to one API server. Enter it inside the event loop that uses it.

    Every request carries the current credentials, has a deadline, and goes through the proxy that the connection or
    the environment names. Changed certificate files are reloaded.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        metrics: RequestMetrics | None = None,
        clock: Clock | None = None,
        user_agent: str = "torchctl",
        settings: ClientSettings | None = None,
    ) -> None:
        self._connection = connection
        self._settings = settings or ClientSettings()
        self._clock = clock or SystemClock()
        self._user_agent = user_agent
        self._proxy = connection.proxy or proxy_for(connection.host, os.environ)
        self._tls = TlsContexts(self._clock)
        # Requests wait for a slot here, before the gate is checked: in the connection pool they would wait after it.
        self._slots = asyncio.Semaphore(self._settings.max_connections)
        self._urgent_slots = asyncio.Semaphore(MAX_URGENT)
        self._requests: aiohttp.ClientSession | None = None
        self._urgent: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self._upgrades: aiohttp.ClientSession | None = None
        self._host = urlsplit(connection.host)
        self._metrics = None if metrics is None else metrics.for_host(self._host.netloc)

    def __repr__(self) -> str:
        return f"<AiohttpTransport to {self._connection.host}>"

    @property
    def is_closed(self) -> bool:
        """True if no session is open."""
        return all(session.closed for session in self._sessions)

    @property
    def _sessions(self) -> tuple[aiohttp.ClientSession, ...]:
        return tuple(filter(None, (self._requests, self._urgent, self._watches, self._upgrades)))

    def _session(self, connections: int, check: "_Check | None" = None) -> aiohttp.ClientSession:
        return _session(connections, self._user_agent, self._settings.connect_timeout_s, check)

    async def __aenter__(self) -> Self:
        self._requests = self._session(self._settings.max_connections)
        self._urgent = self._session(MAX_URGENT)
        self._watches = self._session(0)
        self._upgrades = self._session(0, _refuse)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Shielded, so that a cancelled task leaves no socket open either.
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            async with anyio.create_task_group() as closing:
                for session in self._sessions:
                    closing.start_soon(session.close)
            await anyio.lowlevel.checkpoint()  # sockets are closed in the next round of the event loop

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        session, slots = (self._urgent, self._urgent_slots) if request.is_urgent else (self._requests, self._slots)
        assert session is not None, "the transport has not been entered"
        with mapped(request):
            async with asyncio.timeout(request.timeout_s), slots:
                response = await self._exchange(self._requesting(session, request, gate))
                body = await response.read()  # it gives the connection back, or closes it if it is cancelled
        if self._metrics is not None:
            self._metrics.note_sizes(request.verb, len(request.body or b""), len(body))
        return HttpResponse(response.status, response.headers, body)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncGenerator[ByteStream]:
        assert self._watches is not None, "the transport has not been entered"
        with mapped(request):
            async with asyncio.timeout(request.timeout_s):
                response = await self._exchange(self._requesting(self._watches, request, None))
        try:
            yield _Lines(response, request)
        finally:
            # Drop the connection with all data still under way on it; a TLS farewell would outlive the event loop.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    @asynccontextmanager
    async def upgrade(self, request: HttpRequest, protocol: str) -> AsyncGenerator[WebSocket]:
        assert self._upgrades is not None, "the transport has not been entered"
        with mapped(request):
            async with asyncio.timeout(request.timeout_s):
                answer = await self._exchange(self._upgrading(self._upgrades, request, protocol))
        if answer.refusal is not None:
            raise UpgradeRefused(answer.refusal)
        assert answer.socket is not None
        async with kept_alive(WebSocket(answer.socket, request)) as socket:
            yield socket

    async def _exchange(self, dial: "_Dial[T]") -> T:
        credentials = await self._connection.authorization()
        response = await self._attempt(dial, credentials)
        if response.status != 401:
            return response
        fresh = await self._connection.authorization(force=True)
        if fresh is None:
            return response
        response.close()
        return await self._attempt(dial, fresh)

    async def _attempt(self, dial: "_Dial[T]", credentials: str | None) -> T:
        headers = {"Authorization": credentials} if credentials else {}
        context = self._context()
        try:
            return await dial(headers, context)
        except (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError):
            fresh = self._context(check=True)
            if fresh is context:
                raise
            return await dial(headers, fresh)

    def _requesting(
        self, session: aiohttp.ClientSession, request: HttpRequest, gate: Gate | None
    ) -> "_Dial[aiohttp.ClientResponse]":
        async def dial(credentials: Mapping[str, str], context: ssl.SSLContext | None) -> aiohttp.ClientResponse:
            if gate is not None:
                gate()
            with self._observed(request) as outcome:
                response = await session.request(
                    request.method,
                    self._url(request),
                    headers=self._headers(request, credentials),
                    # A payload, because aiohttp asks bytes for each type of payload that there is.
                    data=aiohttp.BytesPayload(request.body) if request.body is not None else None,
                    proxy=self._proxy,
                    ssl=context if context is not None else True,
                    server_hostname=self._server_name(context),
                    allow_redirects=False,
                )
                outcome.code = response.status
            return response

        return dial

    def _upgrading(self, session: aiohttp.ClientSession, request: HttpRequest, protocol: str) -> "_Dial[_Upgrade]":
        async def dial(credentials: Mapping[str, str], context: ssl.SSLContext | None) -> _Upgrade:
            with self._observed(request) as outcome:
                try:
                    socket = await session.ws_connect(
                        self._url(request),
                        headers=self._headers(request, credentials),
                        protocols=(protocol,),
                        timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),
                        proxy=self._proxy,
                        ssl=context if context is not None else True,
                        server_hostname=self._server_name(context),
                    )
                except UpgradeRefused as refused:
                    outcome.code = refused.response.status
                    return _Upgrade(refused.response.status, refusal=refused.response)
                outcome.code = 101
            return _Upgrade(101, socket)

        return dial

    def _headers(self, request: HttpRequest, credentials: Mapping[str, str]) -> CIMultiDict[str]:
        return CIMultiDict((*request.headers, *self._connection.headers, *credentials.items()))

    def _url(self, request: HttpRequest) -> URL:
        scheme, authority, path, *_ = self._host
        path += request.path
        return URL.build(scheme=scheme, authority=authority, path=path, query_string=request.query_string, encoded=True)

    def _server_name(self, context: ssl.SSLContext | None) -> str | None:
        return self._connection.tls.server_name if context is not None else None

    def _context(self, *, check: bool = False) -> ssl.SSLContext | None:
        if self._host.scheme != "https":
            return None
        return self._tls.current(self._connection.tls_files(), check=check)

    def _observed(self, request: HttpRequest) -> "_Sending":
        return _Sending(request, self._metrics, self._clock)


class _Answer(Protocol):
    """The part of an answer that decides if it is asked for again."""

    @property
    def status(self) -> int: ...

    def close(self) -> None: ...


_Dial = Callable[[Mapping[str, str], ssl.SSLContext | None], Awaitable[T]]
"""Sends a request once, with these credentials."""


class _Sending:
    """Counts and times one exchange. Whoever gets an answer sets `code`, its HTTP status; without one it is 0."""

    __slots__ = ("_began_s", "_clock", "_metrics", "_request", "code")

    def __init__(self, request: HttpRequest, metrics: HostMetrics | None, clock: Clock) -> None:
        self._request, self._metrics, self._clock = request, metrics, clock
        self.code = 0

    def __enter__(self) -> Self:
        self._began_s = self._clock.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        if self._metrics is not None:
            seconds = self._clock.monotonic() - self._began_s
            self._metrics.note_attempt(self._request.verb, self._request.method, self.code, seconds)


@dataclass(frozen=True, slots=True)
class _Upgrade:
    """The answer to a websocket's handshake: the websocket, or the refusal, which has been read."""

    status: int
    socket: "aiohttp.ClientWebSocketResponse[bool] | None" = None
    refusal: HttpResponse | None = None

    def close(self) -> None:
        """A refusal holds no connection."""


class _Lines:
    """An aiohttp answer as a LineStream."""

    def __init__(self, response: aiohttp.ClientResponse, request: HttpRequest) -> None:
        self._response = response
        self._request = request
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._lines: deque[bytes] = deque()
        self._head: list[bytes] = []

    async def read_body(self) -> bytes:
        with mapped(self._request):
            async with asyncio.timeout(self._request.timeout_s):
                return await self._response.read()

    async def read(self, timeout_s: float) -> bytes:
        with mapped(self._request):
            async with asyncio.timeout(timeout_s):
                return await self._response.content.readany()

    async def readlines(self, timeout_s: float) -> bytes:
        with mapped(self._request):
            async with asyncio.timeout(timeout_s):
                # Bytes without a line end are the beginning of a line that never arrived completely.
                while chunk := await self._response.content.readany():
                    if lines := self._complete(chunk):
                        return lines
        return b""

    async def readline(self, timeout_s: float) -> bytes:
        if not self._lines:
            lines = await self.readlines(timeout_s)
            self._lines.extend(line + b"\n" for line in lines.split(b"\n")[:-1])
        return self._lines.popleft() if self._lines else b""

    def _complete(self, chunk: bytes) -> bytes:
        """Returns the lines that `chunk` completes; the rest is kept."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._head.append(chunk)
            if sum(map(len, self._head)) > MAX_LINE:
                raise ValueError(f"a line of more than {MAX_LINE} bytes")
            return b""
        lines = b"".join((*self._head, memoryview(chunk)[:end]))
        self._head = [chunk[end:]]
        return lines


async def _refuse(response: aiohttp.ClientResponse) -> None:
    """Reads what the server says if it refuses a handshake: aiohttp's own error has only the status."""
    if response.status != 101:
        raise UpgradeRefused(HttpResponse(response.status, response.headers, await response.read()))


_Check = Callable[[aiohttp.ClientResponse], Awaitable[None]]


def _session(
    connections: int, user_agent: str, connect_timeout_s: float, check: _Check | None = None
) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, socket_factory=open_socket),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": user_agent},
        timeout=aiohttp.ClientTimeout(connect=connect_timeout_s),
        trust_env=False,
        raise_for_status=check or False,
    )
    # aiohttp repeats PUT and DELETE by itself when a kept connection breaks: a write could then happen twice, and
    # without asking the fence. There is no public way to disable that; a test checks that this name exists.
    session._retry_connection = False
    return session
