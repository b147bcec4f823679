"""The network between one client and the API server: it delays, loses answers and breaks."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from torchctl.runtime.client.errors import Unavailable
from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import HttpRequest
from torchctl.testing.sim.world import World

__all__ = ["Wire"]

LEAST_S, MOST_S = 0.001, 0.02


class Wire:
    """A transport to the world's API server.

    Attributes:
        cut: Nothing passes any more, as when the process at this end was killed.
        loses: The share of requests whose answer is lost although they were carried out.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self.cut = False
        self.loses = 0.0
        self._world = world
        self._chance = chance

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        if gate is not None:
            gate()
        await self._pass()
        answer = await self._world.server.send(request)
        await anyio.sleep(self._chance.uniform(LEAST_S, MOST_S))
        lost = self._chance.random() < self.loses
        if self.cut or lost:
            raise Unavailable("the connection broke", outcome_unknown=request.method != "GET")
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncGenerator[LineStream]:
        await self._pass()
        async with self._world.server.stream(request) as stream:
            yield stream

    async def _pass(self) -> None:
        await anyio.sleep(self._chance.uniform(LEAST_S, MOST_S))
        if self.cut or self._world.away:
            raise Unavailable("connection refused")
