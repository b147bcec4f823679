"""Serves `/metrics`, `/healthz` and `/readyz`, bounded in connections and in time.

Each connection carries one request and is cut when its time is over, and a port that is full closes what
comes in: neither a flood nor a client that reads a byte a minute takes more than a fixed part of the process.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
from aiohttp import web
from anyio.abc import TaskStatus
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest

from torchctl.runtime.clock import Clock
from torchctl.runtime.health import HealthChecks, Report
from torchctl.runtime.settings import ServerSettings

__all__ = ["Server"]

RENDERING_KEPT_S = 0.2
"""A scrape within this time of another one gets the same bytes, so that a flood of them costs little."""

STOP_S = 1.0
"""How long a request that is being answered may take to end when the server stops."""

Page = Callable[[web.BaseRequest], web.Response]


class Server:
    """The HTTP side of a process.

    Metrics and health listen on ports of their own, so that whoever fills the one leaves the other working.
    `metrics_port` and `health_port` are the real ports once it listens.
    """

    def __init__(
        self, settings: ServerSettings, registry: CollectorRegistry, checks: HealthChecks, clock: Clock
    ) -> None:
        self.metrics_port = settings.metrics_port
        self.health_port = settings.health_port
        self._settings = settings
        self._metrics: dict[str, Page] = {"/metrics": _MetricsPage(registry, clock)}
        self._health: dict[str, Page] = {
            "/healthz": _health_page("healthz", checks.live),
            "/readyz": _health_page("readyz", checks.ready),
        }

    def __repr__(self) -> str:
        return f"<Server metrics on {self.metrics_port}, health on {self.health_port}>"

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled; started once it listens on all its ports.

        Raises:
            OSError: A port is taken or may not be used.
        """
        async with AsyncExitStack() as stack:
            if self._settings.metrics_port is not None:
                self.metrics_port = await stack.enter_async_context(
                    _listen(self._settings, self._settings.metrics_port, self._metrics)
                )
            if self._settings.health_port is not None:
                self.health_port = await stack.enter_async_context(
                    _listen(self._settings, self._settings.health_port, self._health)
                )
            task_status.started()
            await anyio.sleep_forever()


class _MetricsPage:
    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._body = b""
        self._rendered_at = float("-inf")

    def __call__(self, request: web.BaseRequest) -> web.Response:
        now = self._clock.monotonic()
        if now - self._rendered_at >= RENDERING_KEPT_S:
            self._body, self._rendered_at = generate_latest(self._registry), now
        return web.Response(body=self._body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


def _health_page(path: str, run: Callable[[], Report]) -> Page:
    def page(request: web.BaseRequest) -> web.Response:
        report = run()
        brief = report.ok and "verbose" not in request.query
        return web.Response(status=200 if report.ok else 500, text="ok" if brief else report.text(path))

    return page


def _router(pages: Mapping[str, Page]) -> Callable[[web.BaseRequest], Awaitable[web.Response]]:
    async def answer(request: web.BaseRequest) -> web.Response:
        page = pages.get(request.path)
        if page is None:
            response = web.Response(status=404, text="not found\n")
        elif request.method not in ("GET", "HEAD"):
            response = web.Response(status=405, text="method not allowed\n", headers={"Allow": "GET, HEAD"})
        else:
            response = page(request)
        response.force_close()
        return response

    return answer


@asynccontextmanager
async def _listen(settings: ServerSettings, port: int, pages: Mapping[str, Page]) -> AsyncIterator[int]:
    """Listens on `port` and yields the real one."""
    http = web.Server(_router(pages))
    gate = _Gate(settings.max_connections, settings.request_timeout_s)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: _Connection(http, loop, gate), settings.host, port)
    try:
        yield int(listener.sockets[0].getsockname()[1])
    finally:
        listener.close()
        with anyio.CancelScope(shield=True):
            await http.shutdown(STOP_S)


class _Gate:
    """Counts the connections of a port."""

    def __init__(self, limit: int, timeout_s: float) -> None:
        self.limit = limit
        self.timeout_s = timeout_s
        self.open: dict[_Connection, asyncio.TimerHandle] = {}


class _Connection(web.RequestHandler):
    """aiohttp's connection, but refused where the port is full and cut when its time is over."""

    __slots__ = ("_gate",)

    def __init__(self, http: web.Server, loop: asyncio.AbstractEventLoop, gate: _Gate) -> None:
        super().__init__(http, loop=loop, keepalive_timeout=gate.timeout_s, lingering_time=0)
        self._gate = gate

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if len(self._gate.open) >= self._gate.limit:
            transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._gate.open[self] = loop.call_later(self._gate.timeout_s, transport.abort)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        timer = self._gate.open.pop(self, None)
        if timer is not None:
            timer.cancel()
        super().connection_lost(exc)
