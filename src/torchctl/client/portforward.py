"""A local TCP port that leads to a port of a pod, so that any HTTP client can talk to what listens there.

The pod's port may listen on the pod's loopback interface only. Each local connection is one of its own to the pod. A
connection that is cut anywhere between here and the pod is reset here: an HTTP client gets an error and does not take a
part of an answer for the whole. `PortForward.failure` then says what happened, for the message to the user and for the
decision whether to try again.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, Unavailable
from torchctl.runtime.client.portforward import MAX_MESSAGE, PodConnection, connect_port

__all__ = ["PortForward", "forward_port"]

HOST = "127.0.0.1"

MAX_CONNECTIONS = 4
"""The number of local connections at once. A further one is closed: this is no proxy for many clients."""

STALL_TIMEOUT_S = 120.0
"""Seconds for which the pod may take nothing of what is sent to it."""


LAST_WORDS_S = 5.0
"""Seconds to wait for what the pod's side says about a connection that it has ended."""


class PortForward:
    """A pod's port, listening on this machine's loopback interface while `forward_port` runs.

    Attributes:
        failure: Why a connection broke last; None while none did.
        answered: Whether anything came from the pod, over any connection.
    """

    def __init__(self, client: Client, pod: str, namespace: str, port: int) -> None:
        self.failure: ApiError | None = None
        self.answered = False
        self._client = client
        self._pod = pod
        self._namespace = namespace
        self._port = port
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<PortForward {self._namespace}/{self._pod}:{self._port} connections={len(self._connections)}>"

    @property
    def url(self) -> str:
        """The address for an HTTP client, such as http://127.0.0.1:40123."""
        assert self._server is not None, "the port does not listen"
        return f"http://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0, limit=MAX_MESSAGE)

    async def stop(self) -> None:
        """Closes the port and resets the connections that are still open."""
        assert self._server is not None, "the port does not listen"
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio tells of a connection a turn after it was accepted: the port may be closed by then.
        if self._server is None or not self._server.is_serving() or len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        task.add_done_callback(lambda _: writer.close())  # a task that is cancelled before it begins does nothing

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with connect_port(self._client, self._pod, self._namespace, self._port) as pod:
                await _both(_upwards(reader, pod), self._downwards(pod, writer))
        except ApiError as error:
            self.failure = error
            _reset(writer)
        except asyncio.CancelledError:
            _reset(writer)
            raise

    async def _downwards(self, pod: PodConnection, writer: asyncio.StreamWriter) -> None:
        # No deadline: the HTTP client has one, and closes the connection when it passes.
        while data := await pod.receive(None):
            self.answered = True
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def forward_port(client: Client, pod: str, namespace: str, port: int) -> AsyncGenerator[PortForward]:
    """Listens on the loopback interface while the block runs. RBAC: `get` and `create` on pods/portforward."""
    forward = PortForward(client, pod, namespace, port)
    await forward.start()
    try:
        yield forward
    finally:
        await forward.stop()


async def _upwards(reader: asyncio.StreamReader, pod: PodConnection) -> None:
    while data := await reader.read(MAX_MESSAGE):
        await pod.send(data, STALL_TIMEOUT_S)


async def _both(upwards: Coroutine[Any, Any, None], downwards: Coroutine[Any, Any, None]) -> None:
    """Runs both directions until one has ended, and raises its error if it failed."""
    up, down = asyncio.create_task(upwards), asyncio.create_task(downwards)
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        if up.done() and isinstance(up.exception(), Unavailable):
            # The pod's side has ended the connection. Why, is the last that comes from there.
            await asyncio.wait((down,), timeout=LAST_WORDS_S)
        for task in filter(asyncio.Task.done, (down, up)):
            _raise_ours(task)
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


def _raise_ours(task: asyncio.Task[None]) -> None:
    error = task.exception()
    # A local client that goes away is no failure of the forwarding.
    if error is not None and not isinstance(error, ConnectionError):
        raise error


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends the local connection by RST, which no client takes for the end of an answer."""
    if writer.is_closing():  # the client is gone, and the socket with it
        return
    opened = writer.get_extra_info("socket")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
