"""Runs a watch machine against the API server: performs its actions, feeds it the results, passes on its events."""

import random
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import structlog
from structlog.typing import FilteringBoundLogger

from torchctl.runtime.cancellation import cancelled_only_if_asked
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, Timeout
from torchctl.runtime.client.exchange import LineStream
from torchctl.runtime.clock import Clock
from torchctl.runtime.kinds import Kind, Object
from torchctl.runtime.watch.core import Input, WatchMachine
from torchctl.runtime.watch.events import ListPage, OpenWatch, StoreEvent, Wait
from torchctl.runtime.watch.inputs import Closed, ErrorStatus, Lost, Opened, Rested, Silent
from torchctl.runtime.watch.pace import Pace
from torchctl.runtime.watch.selector import Selector
from torchctl.runtime.watch.settings import WatchSettings

__all__ = ["Reflector", "Sink"]

log: FilteringBoundLogger = structlog.get_logger(__name__)

T = TypeVar("T", bound=Object)

TRICKLE = 2**16
"""If a read of a streaming list returns fewer bytes than this, the next read waits `GATHER_S` for more."""

GATHER_S = 0.005
"""Seconds to wait for more data. The server sends each object of a streaming list separately, and reading them one by
one takes a quarter more CPU than in batches, often on the machine that the server runs on."""


class Sink(Protocol[T]):
    """The receiver of a watch's events: an informer."""

    kind: Kind[T]
    selector: Selector

    async def feed(self, event: StoreEvent[T]) -> None: ...

    def heard(self) -> None: ...

    def tried(self) -> None: ...


class Reflector(Generic[T]):
    """Keeps a sink in sync with the API server. RBAC: list and watch on the kind."""

    def __init__(
        self,
        client: Client,
        sink: Sink[T],
        settings: WatchSettings | None = None,
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger = log,
    ) -> None:
        self._client = client
        self._sink = sink
        self._clock = clock
        self._rng = rng
        self._log = log
        self._machine: WatchMachine[T] = WatchMachine(settings)
        self._pace = Pace()
        self._complaint = ""
        self._trickles = False

    def __repr__(self) -> str:
        return f"<Reflector {self._sink.kind.resource} {self._machine!r}>"

    async def run(self) -> None:
        """Runs until cancelled; neither ends nor raises otherwise."""
        while True:
            try:
                with cancelled_only_if_asked():
                    await self._step()
            except Exception:
                # A defect of ours. The store may have missed an event, which only a fresh list repairs.
                self._log.exception("watch failed, listing again", resource=self._sink.kind.resource)
                self._machine.restart()

    async def _step(self) -> None:
        match self._machine.next(self._rng.random()):
            case Wait(seconds):
                await self._clock.sleep(seconds)
                await self._feed(Rested())
            case ListPage() as action:
                await self._feed(await self._list(action))
            case OpenWatch() as action:
                await self._watch(action)

    async def _list(self, action: ListPage) -> Input[T]:
        selector = self._sink.selector
        try:
            page = await self._client.list_page(
                self._sink.kind,
                namespace=selector.namespace,
                labels=selector.labels,
                fields=selector.fields,
                limit=action.limit,
                continue_=action.continue_,
            )
        except ApiError as error:
            return self._failure(error)
        self._sink.heard()
        return page

    async def _watch(self, action: OpenWatch) -> None:
        selector = self._sink.selector
        try:
            async with self._client.watch(
                self._sink.kind,
                namespace=selector.namespace,
                labels=selector.labels,
                fields=selector.fields,
                resource_version=action.resource_version,
                send_initial_events=action.send_initial_events,
                timeout_s=action.server_timeout_s,
            ) as stream:
                self._sink.heard()
                self._complaint = ""
                await self._feed(Opened())
                while self._machine.is_reading:
                    await self._feed_all(await self._read(stream))
        except ApiError as error:
            await self._feed(self._failure(error))

    async def _read(self, stream: LineStream) -> Sequence[Input[T]]:
        if self._trickles and self._machine.is_listing:
            await self._clock.sleep(GATHER_S)
        try:
            lines = await stream.readlines(self._machine.patience(self._clock.monotonic()))
        except Timeout:
            self._sink.tried()
            return (Silent(),)
        if not lines:
            return (Closed(),)
        self._trickles = len(lines) < TRICKLE
        self._sink.heard()
        return self._client.codec.decode_events(self._sink.kind, lines)

    async def _feed_all(self, inputs: Sequence[Input[T]]) -> None:
        for fed in inputs:
            await self._feed(fed)
            if not self._machine.is_reading:
                return  # inputs after the end of a stream are meaningless

    async def _feed(self, fed: Input[T]) -> None:
        for event in self._machine.feed(fed, self._clock.monotonic()):
            await self._sink.feed(event)
        await self._pace.step()

    def _failure(self, error: ApiError) -> ErrorStatus | Lost:
        self._complain(str(error))
        self._sink.tried()
        if error.code:
            return ErrorStatus(error.code, error.reason, error.message, error.retry_after_s)
        return Lost(str(error))

    def _complain(self, error: str) -> None:
        """Logs a repeated failure once, because an outage or a missing kind may last for days."""
        level = self._log.debug if error == self._complaint else self._log.info
        level("watch interrupted", resource=self._sink.kind.resource, error=error, state=repr(self._machine))
        self._complaint = error
