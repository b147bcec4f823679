"""The promises of a transport: how requests are sent, and how answers and streams are read."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.client.websocket import WebSocket

__all__ = [
    "ByteStream",
    "Gate",
    "HostMetrics",
    "HttpResponse",
    "LineStream",
    "PodTransport",
    "RequestMetrics",
    "Transport",
    "UpgradeRefused",
]

Gate = Callable[[], None]
"""Called immediately before a request is sent. If it raises, nothing is sent."""


class HostMetrics(Protocol):
    """Records the requests to one host."""

    def note_attempt(self, verb: str, method: str, code: int, seconds: float) -> None:
        """Counts one sending of a request; code 0 if no answer came."""

    def note_sizes(self, verb: str, sent: int, received: int) -> None:
        """Counts the bytes of the bodies of a request and of its answer."""


class RequestMetrics(Protocol):
    """The part of the runtime's metrics that a transport records."""

    def for_host(self, host: str) -> HostMetrics: ...


class HttpResponse(msgspec.Struct, frozen=True):
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


class ByteStream(LineStream, Protocol):
    """An answer that is read as it arrives, whatever its lines are."""

    async def read(self, timeout_s: float) -> bytes:
        """Returns what has arrived, at least one byte; empty at the end of the stream.

        Raises the same errors as `readline`. Do not mix with `readline` and `readlines`.
        """
        ...


class UpgradeRefused(Exception):
    """The server answered a websocket's handshake with something else, such as a Status."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(str(response.status))
        self.response = response


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


@runtime_checkable
class PodTransport(Protocol):
    """Carries the streams of pods: logs as they are written, ports and commands by websocket."""

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[ByteStream]:
        """Sends a request and yields the answer as soon as it begins. Raises the same errors as `Transport.send`."""
        ...

    def upgrade(self, request: HttpRequest, protocol: str) -> AbstractAsyncContextManager[WebSocket]:
        """Opens a websocket with this subprotocol. It is kept alive while the block runs.

        Raises:
            UpgradeRefused: The server answered otherwise.
            Unavailable, Timeout: As `Transport.send`.
        """
        ...
