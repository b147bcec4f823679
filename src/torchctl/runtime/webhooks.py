"""Serves admission webhooks over TLS. Every replica answers, whether it leads or not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import structlog
from aiohttp import web
from anyio.abc import TaskStatus

from torchctl.runtime.admission import Admission, Denied, Mutator, Validator, allowed, denied, read, steps
from torchctl.runtime.cancellation import cancelled_only_if_asked
from torchctl.runtime.certificates import Certificates
from torchctl.runtime.client.codec import Codec
from torchctl.runtime.client.errors import Malformed
from torchctl.runtime.clock import Clock
from torchctl.runtime.connections import Gate, listen
from torchctl.runtime.kinds import Kind
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.settings import WebhookSettings

__all__ = ["Webhooks"]

MAX_BODY = 16 * 2**20
"""Bytes of a review: two objects of etcd's limit, and what JSON adds."""

log = structlog.get_logger("torchctl.webhooks")

Handler = Callable[[Admission[Any]], Awaitable[dict[str, Any]]]


class Webhooks:
    """The admission webhooks of a process, by their paths. `Manager.webhooks` is one; it serves if any is added.

    A handler that raises anything but `Denied` answers 500, so that the `failurePolicy` of the configuration decides.
    """

    def __init__(self, settings: WebhookSettings, codec: Codec, metrics: Metrics, clock: Clock) -> None:
        self.port = settings.port
        self._settings = settings
        self._codec = codec
        self._metrics = metrics
        self._clock = clock
        self._handlers: dict[str, tuple[Kind[Any], Handler]] = {}

    def __repr__(self) -> str:
        return f"<Webhooks {', '.join(self._handlers) or 'none'} on {self.port}>"

    def __bool__(self) -> bool:
        return bool(self._handlers)

    def validate(self, path: str, kind: Kind[Any], validator: Validator) -> None:
        """Adds a validating webhook: it lets a request pass unless `validator` raises `Denied`."""

        async def answer(asked: Admission[Any]) -> dict[str, Any]:
            return allowed(asked.uid, warnings=await validator(asked) or ())

        self._add(path, kind, answer)

    def mutate(self, path: str, kind: Kind[Any], mutator: Mutator) -> None:
        """Adds a mutating webhook: what `mutator` returns takes the object's place."""

        async def answer(asked: Admission[Any]) -> dict[str, Any]:
            changed = await mutator(asked)
            return allowed(asked.uid, patch=[] if changed is None else [*steps(asked.body, changed)])

        self._add(path, kind, answer)

    def _add(self, path: str, kind: Kind[Any], handler: Handler) -> None:
        if path in self._handlers:
            raise ValueError(f"a webhook at {path} exists already")
        self._handlers[path] = kind, handler
        self._metrics.for_webhook(path)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled; `port` is the real one once it listens.

        Raises:
            OSError: The port is taken or may not be used.
        """
        settings = self._settings
        gate = Gate(settings.max_connections, settings.request_timeout_s)
        certificates = Certificates(settings.cert_dir, self._clock)
        http = web.Server(self._answer, request_factory=_request)
        async with listen(http, settings.host, settings.port, gate, certificates) as port:
            self.port = port
            log.info("serving webhooks", port=port, paths=[*self._handlers])
            task_status.started()
            await anyio.sleep_forever()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        found = self._handlers.get(request.path)
        if found is None:
            return _closed(web.Response(status=404, text="no such webhook\n"))
        series = self._metrics.for_webhook(request.path)
        with series.in_flight.track_inprogress(), series.latency.time():
            response = await self._review(request, *found)
        series.requests.labels(request.path, str(response.status)).inc()
        if response.status == 500:
            series.panics.inc()
        return _closed(response)

    async def _review(self, request: web.BaseRequest, kind: Kind[Any], handler: Handler) -> web.Response:
        try:
            asked = read(self._codec, kind, await request.read())
        except (ValueError, Malformed) as error:
            return web.Response(status=400, text=f"{error}\n")
        try:
            with cancelled_only_if_asked():
                answer = await handler(asked)
        except Denied as error:
            answer = denied(asked.uid, error)
        except Exception:  # a handler's defect is that request's: the API server gets 500, failurePolicy decides
            log.exception("webhook raised", webhook=request.path, name=asked.name, namespace=asked.namespace)
            return web.Response(status=500, text="the webhook failed\n")
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """Makes a request as aiohttp does, of which more than a megabyte may be read."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)


def _closed(response: web.Response) -> web.Response:
    """Ends the connection with the answer: its place may be needed for another."""
    response.force_close()
    return response
