"""Transports that hold nothing: for what needs an API server and does not care what it says."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint

from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import HttpRequest

__all__ = ["Shelf", "Silence"]


class Silence:
    """A stream on which nothing ever comes."""

    status = 200

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    async def readlines(self, timeout_s: float) -> bytes:
        await anyio.sleep_forever()
        raise AssertionError

    async def readline(self, timeout_s: float) -> bytes:
        return await self.readlines(timeout_s)

    async def read_body(self) -> bytes:
        return b""


class Shelf:
    """A transport that serves empty lists, or nothing at all for the resources in `missing`."""

    def __init__(self, *missing: str) -> None:
        self.missing = set(missing)
        self.asked: list[str] = []

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        self.asked.append(request.path)
        await checkpoint()
        if any(name in request.path for name in self.missing):
            return HttpResponse(404, {}, b"404 page not found")
        return HttpResponse(200, {}, json.dumps({"metadata": {"resourceVersion": "10"}, "items": []}).encode())

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[LineStream]:
        yield Silence()
