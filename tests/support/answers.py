"""A transport that answers from a list, for clients whose requests are judged."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from torchctl.runtime.client.errors import ApiError
from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import HttpRequest

__all__ = ["Answers", "answer"]


def answer(status: int, body: Any = None, **headers: str) -> HttpResponse:
    """Returns an answer in JSON; an underscore in a header's name is a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status, named, msgspec.json.encode(body if body is not None else {}))


class Stream:
    """A watch that is refused or yields nothing."""

    def __init__(self, response: HttpResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._body = response.body

    async def read_body(self) -> bytes:
        return self._body

    async def readlines(self, timeout_s: float) -> bytes:
        return b""

    async def readline(self, timeout_s: float) -> bytes:
        return b""


class Answers:
    """A transport that gives these answers, the last one for ever."""

    def __init__(self, *answers: HttpResponse | ApiError) -> None:
        self.answers = list(answers)
        self.requests: list[HttpRequest] = []

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        if gate is not None:
            gate()
        self.requests.append(request)
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(given, ApiError):
            raise given
        return given

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[LineStream]:
        response = await self.send(request)
        yield Stream(response)
