"""The one module with sockets: sends a request, streams a watch, and turns every failure into one of ours.

- Every exchange has a deadline. A dead TCP connection is found within 30 s by keepalive probes and, where data is
  on its way, by TCP_USER_TIMEOUT. A silent watch is the reader's business: each `readline` has a deadline.
- Watches and requests have connection pools of their own, so that many watches never starve a request.
- A 401 refreshes the credentials and repeats the request once: the server did nothing with the first one.
- The CA and the client certificate are looked at every 10 s; connections made after a change use the new files.
"""

import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import aiohttp
import anyio
import structlog
from yarl import URL

from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import Timeout, Unavailable
from torchctl.runtime.client.proxies import proxy_for
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.client.sockets import open_socket
from torchctl.runtime.client.tls import TlsContexts
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.metrics import Metrics

__all__ = ["AiohttpTransport", "HttpResponse", "LineStream", "Transport"]

CONNECT_TIMEOUT_S = 10.0
MAX_LINE = 16 * 2**20
"""Longer than any object that etcd takes (1.5 MB), whatever its encoding."""
MAX_BODY = 256 * 2**20
REQUEST_CONNECTIONS = 100

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes


class LineStream(Protocol):
    """The body of a watch, line by line."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def readline(self, timeout_s: float) -> bytes:
        """The next line, or empty bytes at the end.

        Raises:
            Timeout: No whole line came in time.
            Unavailable: The connection broke.
        """
        ...

    async def read_body(self) -> bytes:
        """All that is left, for an answer that is no stream."""
        ...


class Transport(Protocol):
    """Carries requests to one API server."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Sends a request and reads the whole answer, whatever its status.

        Raises:
            Timeout: No answer within `request.timeout_s`.
            Unavailable: No connection, or it broke.
        """
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[LineStream]:
        """Sends a request and hands out its body as it comes. Raises as `send` does."""
        ...


class AiohttpTransport:
    """The transport over HTTP/1.1. Made and closed (`async with`) inside a running event loop."""

    def __init__(
        self,
        connection: Connection,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        user_agent: str = "torchctl",
    ) -> None:
        self._connection = connection
        self._clock = clock if clock is not None else SystemClock()
        self._metrics = metrics
        self._host = URL(connection.host).authority
        self._proxy = connection.proxy or proxy_for(connection.host, os.environ)
        self._tls = TlsContexts(self._clock)
        self._user_agent = user_agent
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        if metrics is not None:
            metrics.for_host(self._host)

    def __repr__(self) -> str:
        return f"<AiohttpTransport to {self._connection.host}>"

    async def __aenter__(self) -> Self:
        self._requests = self._session(limit=REQUEST_CONNECTIONS)
        self._watches = self._session(limit=0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            for session in filter(None, (self._requests, self._watches)):
                await session.close()

    async def send(self, request: HttpRequest) -> HttpResponse:
        async with self._exchange(self._requests, request) as response:
            with _deadline(request.timeout_s, request), _mapped(request):
                return HttpResponse(response.status, response.headers, await _read(response))

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[LineStream]:
        async with self._exchange(self._watches, request) as response:
            yield _Lines(request, response)

    @asynccontextmanager
    async def _exchange(
        self, session: aiohttp.ClientSession | None, request: HttpRequest
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert session is not None, "the transport is entered before it is used"
        response = await self._answer(session, request)
        try:
            yield response
        finally:
            # What was not read to its end cannot be reused; closing never waits for the peer.
            response.release() if response.content.at_eof() else response.close()

    async def _answer(self, session: aiohttp.ClientSession, request: HttpRequest) -> aiohttp.ClientResponse:
        response = await self._start(session, request, force=False)
        if response.status != 401:
            return response
        response.close()
        log.info("credentials refused, fetching them anew", path=request.path)
        return await self._start(session, request, force=True)

    async def _start(
        self, session: aiohttp.ClientSession, request: HttpRequest, *, force: bool
    ) -> aiohttp.ClientResponse:
        with self._counted(request) as count, _deadline(request.timeout_s, request), _mapped(request):
            response = await session.request(
                request.method,
                URL(self._connection.host + request.target, encoded=True),
                headers=await self._headers(request, force=force),
                data=request.body,
                proxy=self._proxy,
                ssl=self._ssl(),
                server_hostname=self._connection.tls.server_name,
                allow_redirects=False,
            )
            count(str(response.status))
            return response

    def _ssl(self) -> ssl.SSLContext | bool:
        """The context of the moment; plain HTTP has none."""
        if not self._connection.host.startswith("https"):
            return True
        return self._tls.current(self._connection.tls_files())

    async def _headers(self, request: HttpRequest, *, force: bool) -> dict[str, str]:
        authorization = await self._connection.authorization(force)
        return {
            **dict(request.headers),
            "User-Agent": self._user_agent,
            **({"Authorization": authorization} if authorization else {}),
        }

    @contextmanager
    def _counted(self, request: HttpRequest) -> Iterator[Callable[[str], None]]:
        began, codes = self._clock.monotonic(), ["<error>"]
        try:
            yield codes.append
        finally:
            if self._metrics is not None:
                self._metrics.rest_client_requests_total.labels(codes[-1], request.method, self._host).inc()
                duration_s = self._clock.monotonic() - began
                self._metrics.rest_client_request_duration_seconds.labels(request.verb, self._host).observe(duration_s)

    def _session(self, *, limit: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, socket_factory=open_socket),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
            read_bufsize=2**20,
        )


class _Lines:
    def __init__(self, request: HttpRequest, response: aiohttp.ClientResponse) -> None:
        self._request = request
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def readline(self, timeout_s: float) -> bytes:
        with _deadline(timeout_s, self._request), _mapped(self._request):
            line = await self._response.content.readline(max_line_length=MAX_LINE)
        # A line without its end was cut off: no event, and nobody must take it for one.
        return line if line.endswith(b"\n") else b""

    async def read_body(self) -> bytes:
        with _deadline(self._request.timeout_s, self._request), _mapped(self._request):
            return await _read(self._response)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    if (response.content_length or 0) > MAX_BODY:
        raise Unavailable(f"answer of {response.content_length} bytes is larger than {MAX_BODY}")
    return await response.read()


@contextmanager
def _deadline(timeout_s: float, request: HttpRequest) -> Iterator[None]:
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError as error:
        raise Timeout(
            f"{request.method} {request.path}: no answer within {timeout_s:g} s", outcome_unknown=request.is_write
        ) from error


@contextmanager
def _mapped(request: HttpRequest) -> Iterator[None]:
    """Turns aiohttp's exceptions, and those of the system below it, into ours."""
    what = f"{request.method} {request.path}"
    try:
        yield
    except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError, aiohttp.ClientProxyConnectionError) as error:
        raise Unavailable(f"{what}: no connection: {error}") from error
    except aiohttp.ServerTimeoutError as error:
        raise Timeout(f"{what}: {error}", outcome_unknown=request.is_write) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        detail = f"{type(error).__name__}: {error}"
        raise Unavailable(f"{what}: the connection broke: {detail}", outcome_unknown=request.is_write) from error
