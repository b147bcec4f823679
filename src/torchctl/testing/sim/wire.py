"""The network between one client and the API server: it delays, loses answers and breaks."""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager

import anyio

from torchctl.runtime.client.errors import Timeout, Unavailable
from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import HttpRequest
from torchctl.testing.sim.backlog import Backlog
from torchctl.testing.sim.world import World

__all__ = ["Wire"]

LEAST_S, MOST_S = 0.001, 0.02
SILENCE_S = 10.0
"""Seconds after which a request without an answer is given up."""


class Wire:
    """A transport to the world's API server.

    Attributes:
        cut: Nothing passes any more, as when the process at this end was killed.
        parted: Nothing passes for now, and nobody says so: requests and streams are silent until they time out.
        loses: The share of requests whose answer is lost although they were carried out.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self.cut = False
        self.parted = False
        self.loses = 0.0
        self._world = world
        self._chance = chance
        self._backlog = Backlog()

    @property
    def behind_s(self) -> float:
        """Seconds by which the view of the process at this end may be old, because it was parted."""
        return self._backlog.age_s(anyio.current_time())

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        if gate is not None:
            gate()
        await self._pass()
        if self.parted:
            await anyio.sleep(SILENCE_S)
            raise Timeout("no answer came")
        answer = await self._world.server.send(request)
        await anyio.sleep(self._chance.uniform(LEAST_S, MOST_S))
        lost = self._chance.random() < self.loses or self.parted
        if self.cut or lost:
            raise Unavailable("the connection broke", outcome_unknown=request.method != "GET")
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncGenerator[LineStream]:
        await self._pass()
        watch = (request.path, *(pair for pair in request.query if pair[0].endswith("Selector")))
        if not self.parted:
            self._backlog.clear(watch, anyio.current_time())
        async with self._world.server.stream(request) as stream:
            yield _Stream(stream, self, watch)

    def keep_back(self, watch: Hashable) -> None:
        self._backlog.keep(watch, anyio.current_time())

    async def _pass(self) -> None:
        await anyio.sleep(self._chance.uniform(LEAST_S, MOST_S))
        if self.cut or self._world.away:
            raise Unavailable("connection refused")


class _Stream:
    """A stream that loses what comes while its wire is parted, and is silent from then on, as a dead connection is."""

    def __init__(self, stream: LineStream, wire: Wire, watch: Hashable) -> None:
        self._stream = stream
        self._wire = wire
        self._watch = watch
        self.status = stream.status
        self.headers = stream.headers

    async def read_body(self) -> bytes:
        return await self._stream.read_body()

    async def readline(self, timeout_s: float) -> bytes:
        return await self._read(self._stream.readline, timeout_s)

    async def readlines(self, timeout_s: float) -> bytes:
        return await self._read(self._stream.readlines, timeout_s)

    async def _read(self, read: Callable[[float], Awaitable[bytes]], timeout_s: float) -> bytes:
        gives_up_at = anyio.current_time() + timeout_s
        lines = await read(timeout_s)
        if self._wire.parted:
            self._wire.keep_back(self._watch)
            await anyio.sleep_until(gives_up_at)
            raise Timeout("nothing came on this watch")
        return lines
