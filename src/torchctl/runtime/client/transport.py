"""The only module that talks to the API server over the network. It raises only errors of our own tree.

- Every exchange has a deadline. A vanished peer is detected within 30 s (see `sockets`). A silent watch is detected by
  its reader, because each `readline` has a deadline of its own.
- Watches and requests have separate connections, so that many watches never starve a request.
- Nothing is sent twice here, with two exceptions in which the server did nothing the first time: a 401 is followed by
  one attempt with fresh credentials, and a failed TLS handshake by one with newly read certificate files.
"""

import asyncio
import os
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import urlsplit

import aiohttp
import anyio
import anyio.lowlevel
from multidict import CIMultiDict
from yarl import URL

from torchctl.runtime.cancellation import is_asked_to_cancel
from torchctl.runtime.client.config import Connection, CredentialsError
from torchctl.runtime.client.errors import Timeout, Unavailable
from torchctl.runtime.client.proxies import proxy_for
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.client.sockets import open_socket
from torchctl.runtime.client.tls import TlsContexts
from torchctl.runtime.clock import Clock, SystemClock

__all__ = ["AiohttpTransport", "Gate", "HttpResponse", "LineStream", "RequestMetrics", "Transport"]

CLOSE_TIMEOUT_S = 2.0
CONNECT_TIMEOUT_S = 4.0
"""Seconds for TCP and TLS together, whatever the number of addresses. It must be below the margin that leader election
leaves between two leaders, because a write has passed its gate before it connects."""

MAX_CONNECTIONS = 64
"""The number of connections for requests. Each watch has a connection of its own besides."""

MAX_LINE = 64 * 2**20
"""The maximum bytes of a watch line; etcd holds objects of up to 1.5 MiB."""

Gate = Callable[[], None]
"""Called immediately before a request is sent. If it raises, nothing is sent."""


class _Counter(Protocol):
    def inc(self) -> None: ...


class _Counters(Protocol):
    def labels(self, *values: str) -> _Counter: ...


class _Histogram(Protocol):
    def observe(self, amount: float, /) -> None: ...


class _Histograms(Protocol):
    def labels(self, *values: str) -> _Histogram: ...


class RequestMetrics(Protocol):
    """The part of the runtime's metrics that a transport records."""

    @property
    def rest_client_requests_total(self) -> _Counters: ...

    @property
    def rest_client_request_duration_seconds(self) -> _Histograms: ...

    def for_host(self, host: str) -> None: ...


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete answer. `headers` ignores the case of names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class LineStream(Protocol):
    """An answer that is read line by line."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read_body(self) -> bytes:
        """Returns the whole body, for an answer that is a refusal instead of a stream."""
        ...

    async def readlines(self, timeout_s: float) -> bytes:
        """Returns all complete lines that have arrived, at least one; empty at the end of the stream.

        Raises the same errors as `readline`.
        """
        ...

    async def readline(self, timeout_s: float) -> bytes:
        """Returns the next complete line; empty at the end of the stream. Do not mix with `readlines`.

        Raises:
            Timeout: None came within `timeout_s`. The stream is no longer usable.
            Unavailable: The connection broke.
        """
        ...


class Transport(Protocol):
    """Sends requests over a network, or a simulation of one."""

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        """Sends a request and reads the whole answer, whatever its status.

        Raises:
            Unavailable: The server could not be reached, or the connection broke.
            Timeout: The request's deadline passed.
        """
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[LineStream]:
        """Sends a request and yields the answer as soon as it begins. Raises the same errors as `send`."""
        ...


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
    ) -> None:
        self._connection = connection
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._user_agent = user_agent
        self._host = urlsplit(connection.host).netloc
        self._proxy = connection.proxy or proxy_for(connection.host, os.environ)
        self._tls = TlsContexts(self._clock)
        # Requests wait for a slot here, before the gate is checked: in the connection pool they would wait after it.
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        if metrics is not None:
            metrics.for_host(self._host)

    def __repr__(self) -> str:
        return f"<AiohttpTransport to {self._connection.host}>"

    @property
    def is_closed(self) -> bool:
        """True if no session is open."""
        return all(session is None or session.closed for session in (self._requests, self._watches))

    async def __aenter__(self) -> Self:
        self._requests = _session(MAX_CONNECTIONS, self._user_agent)
        self._watches = _session(0, self._user_agent)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Shielded, so that a cancelled task leaves no socket open either.
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            for session in filter(None, (self._requests, self._watches)):
                await session.close()
            await anyio.lowlevel.checkpoint()  # sockets are closed in the next round of the event loop

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        assert self._requests is not None, "the transport has not been entered"
        with _mapped(request):
            async with (
                asyncio.timeout(request.timeout_s),
                self._slots,
                await self._exchange(self._requests, request, gate) as response,
            ):
                return HttpResponse(response.status, response.headers, await response.read())

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncGenerator[LineStream]:
        assert self._watches is not None, "the transport has not been entered"
        with _mapped(request):
            async with asyncio.timeout(request.timeout_s):
                response = await self._exchange(self._watches, request, None)
        try:
            yield _Lines(response, request)
        finally:
            # Drop the connection with all data still under way on it; a TLS farewell would outlive the event loop.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    async def _exchange(
        self, session: aiohttp.ClientSession, request: HttpRequest, gate: Gate | None
    ) -> aiohttp.ClientResponse:
        credentials = await self._connection.authorization()
        response = await self._attempt(session, request, gate, credentials)
        if response.status != 401:
            return response
        fresh = await self._connection.authorization(force=True)
        if fresh is None:
            return response
        response.close()
        return await self._attempt(session, request, gate, fresh)

    async def _attempt(
        self, session: aiohttp.ClientSession, request: HttpRequest, gate: Gate | None, credentials: str | None
    ) -> aiohttp.ClientResponse:
        context = self._context()
        try:
            return await self._request(session, request, gate, credentials, context)
        except (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError):
            fresh = self._context(check=True)
            if fresh is context:
                raise
            return await self._request(session, request, gate, credentials, fresh)

    async def _request(
        self,
        session: aiohttp.ClientSession,
        request: HttpRequest,
        gate: Gate | None,
        credentials: str | None,
        context: ssl.SSLContext | None,
    ) -> aiohttp.ClientResponse:
        headers = CIMultiDict((*request.headers, *self._connection.headers))
        if credentials:
            headers["Authorization"] = credentials
        if gate is not None:
            gate()
        began, code = self._clock.monotonic(), "<error>"
        try:
            response = await session.request(
                request.method,
                URL(self._connection.host + request.target, encoded=True),
                headers=headers,
                data=request.body,
                proxy=self._proxy,
                ssl=context if context is not None else True,
                server_hostname=self._connection.tls.server_name if context is not None else None,
                allow_redirects=False,
            )
            code = str(response.status)
        finally:
            self._observe(request, code, self._clock.monotonic() - began)
        return response

    def _context(self, *, check: bool = False) -> ssl.SSLContext | None:
        if not self._connection.host.startswith("https:"):
            return None
        return self._tls.current(self._connection.tls_files(), check=check)

    def _observe(self, request: HttpRequest, code: str, seconds: float) -> None:
        if self._metrics is not None:
            self._metrics.rest_client_requests_total.labels(code, request.method, self._host).inc()
            self._metrics.rest_client_request_duration_seconds.labels(request.verb, self._host).observe(seconds)


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
        with _mapped(self._request):
            async with asyncio.timeout(self._request.timeout_s):
                return await self._response.read()

    async def readlines(self, timeout_s: float) -> bytes:
        with _mapped(self._request):
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


def _session(connections: int, user_agent: str) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, socket_factory=open_socket),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": user_agent},
        skip_auto_headers=("Content-Type",),
        timeout=aiohttp.ClientTimeout(connect=CONNECT_TIMEOUT_S),
        trust_env=False,
    )
    # aiohttp repeats PUT and DELETE by itself when a kept connection breaks: a write could then happen twice, and
    # without asking the fence. There is no public way to disable that; a test checks that this name exists.
    session._retry_connection = False
    return session


@contextmanager
def _mapped(request: HttpRequest) -> Iterator[None]:
    """Turns the errors of the layers below into ours."""
    what = f"{request.verb} {request.path}"
    try:
        yield
    except asyncio.CancelledError as error:
        if is_asked_to_cancel():
            raise
        message = f"{what}: somebody else cancelled what it waited for"
        raise Unavailable(message, outcome_unknown=request.is_write) from error
    except CredentialsError as error:
        raise Unavailable(f"{what}: {error}") from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
        raise Unavailable(f"{what}: cannot connect: {error}") from error
    except TimeoutError as error:
        raise Timeout(f"{what}: no answer in time", outcome_unknown=request.is_write) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        detail = f"{type(error).__name__}: {error}"
        raise Unavailable(f"{what}: the connection broke: {detail}", outcome_unknown=request.is_write) from error
