"""Serves `/metrics`, `/healthz` and `/readyz`, bounded in connections and in time.

Each connection carries one request and is cut when its time is over. A port that is full cuts the oldest connection for
each new one. So neither a flood nor a client that reads a byte a minute takes more than a fixed part of the process,
and a client that only holds connections keeps no probe out.

Health is for everybody. Metrics are restricted if `readers` are given. Then, or if there is a certificate, they are
served over TLS, so that a token never crosses the network in the clear.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import anyio
from aiohttp import web
from anyio.abc import TaskStatus
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest

from torchctl.runtime.access.core import Access
from torchctl.runtime.access.readers import REVIEW_TIMEOUT_S, Readers
from torchctl.runtime.certificates import Certificates
from torchctl.runtime.clock import Clock
from torchctl.runtime.connections import Gate, listen
from torchctl.runtime.health import HealthChecks, Report
from torchctl.runtime.settings import ServerSettings

__all__ = ["METRICS", "Server"]

METRICS = "/metrics"

RENDERING_KEPT_S = 0.2
"""Seconds for which a rendered page is reused, so that a flood of scrapes costs little."""

REFUSALS = {
    Access.UNAUTHENTICATED: "a valid bearer token is needed\n",
    Access.FORBIDDEN: f"the right to get the nonResourceURL {METRICS} is needed\n",
    Access.BUSY: "too many unknown tokens\n",
    Access.UNAVAILABLE: "the API server does not say who may read\n",
}
LATER = {"Retry-After": "1"}
HEADERS = {
    Access.UNAUTHENTICATED: {"WWW-Authenticate": "Bearer"},
    Access.BUSY: LATER,
    Access.UNAVAILABLE: LATER,
}

Page = Callable[[web.BaseRequest], Awaitable[web.Response]]


class Server:
    """The HTTP side of a process.

    Metrics and health have separate ports, so that a client that fills one leaves the other working.
    `metrics_port` and `health_port` are the real ports once it listens.

    Args:
        settings: Ports and limits.
        registry: The metrics.
        checks: The health checks.
        clock: Times what is kept for a while.
        readers: Decides who may read the metrics; None: everybody who reaches the port. Required if the settings say
            `metrics_auth`.
    """

    def __init__(
        self,
        settings: ServerSettings,
        registry: CollectorRegistry,
        checks: HealthChecks,
        clock: Clock,
        readers: Readers | None = None,
    ) -> None:
        if settings.metrics_auth and readers is None:
            raise ValueError("metrics_auth takes somebody who knows the readers")
        self.metrics_port = settings.metrics_port
        self.health_port = settings.health_port
        self._settings = settings
        page = _MetricsPage(registry, clock)
        self._metrics: dict[str, Page] = {METRICS: page if readers is None else _Guarded(page, readers)}
        # The API server's review comes before the page is sent, and takes time too.
        self._metrics_timeout_s = settings.request_timeout_s + (0.0 if readers is None else REVIEW_TIMEOUT_S)
        encrypted = readers is not None or settings.metrics_cert_dir is not None
        self._certificates = Certificates(settings.metrics_cert_dir, clock) if encrypted else None
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
                    self._listen(
                        self._settings.metrics_port, self._metrics, self._metrics_timeout_s, self._certificates
                    )
                )
            if self._settings.health_port is not None:
                self.health_port = await stack.enter_async_context(
                    self._listen(self._settings.health_port, self._health, self._settings.request_timeout_s)
                )
            task_status.started()
            await anyio.sleep_forever()

    def _listen(
        self, port: int, pages: Mapping[str, Page], timeout_s: float, certificates: Certificates | None = None
    ) -> AbstractAsyncContextManager[int]:
        gate = Gate(self._settings.max_connections, timeout_s)
        return listen(web.Server(_router(pages)), self._settings.host, port, gate, certificates)


class _MetricsPage:
    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._body = b""
        self._rendered_at = float("-inf")

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        now = self._clock.monotonic()
        if now - self._rendered_at >= RENDERING_KEPT_S:
            self._body, self._rendered_at = generate_latest(self._registry), now
        return web.Response(body=self._body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


class _Guarded:
    """A page that is sent only to clients that the API server lets read it."""

    def __init__(self, page: Page, readers: Readers) -> None:
        self._page = page
        self._readers = readers

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        access = await self._readers.access(request.headers.get("Authorization", ""))
        if access is Access.ALLOWED:
            return await self._page(request)
        return web.Response(status=access.value, text=REFUSALS[access], headers=HEADERS.get(access))


def _health_page(path: str, run: Callable[[], Report]) -> Page:
    async def page(request: web.BaseRequest) -> web.Response:
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
            response = await page(request)
        response.force_close()
        return response

    return answer
