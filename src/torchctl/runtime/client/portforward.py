"""One TCP connection to a pod's port, through the API server.

It arrives at the pod's loopback interface, so it reaches what listens there and nothing else can. RBAC: `get` on
pods/portforward, and since Kubernetes 1.35 `create` too.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import BadRequest, Malformed, Unavailable, Unsupported
from torchctl.runtime.client.requests import port_forward
from torchctl.runtime.client.spdy import MAX_FRAME, PortStreams
from torchctl.runtime.client.websocket import WebSocket, pinged

__all__ = ["MAX_MESSAGE", "OPEN_TIMEOUT_S", "PORT_PROTOCOL", "PodConnection", "connect_port"]

PORT_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
"""The API server takes it since 1.31 (`PortForwardWebsockets`), and speaks SPDY to the node."""

MAX_MESSAGE = 2**17
"""The maximum bytes of a message that we send: the node keeps a whole message in memory before it passes it on."""

_OLDER = 'query parameter "port" is required'
"""What a kubelet says to a websocket that the API server has handed on to it as it is: it expects `v4.channel`."""

OPEN_TIMEOUT_S = 30.0
"""Seconds for the node to take a new connection."""

NODE_PING_PERIOD_S = 5.0
"""Seconds between pings through to the node.

An API server that has lost the node closes our connection only once it has read something of us that it cannot hand
on, and a ping of the websocket is nothing of that kind: `tunnelingWebsocketUpgraderConn.Close` waits for a lock that
its `Read` holds (k8s.io/apiserver/pkg/util/proxy/streamtunnel.go, 1.36). So whoever only waits for an answer would
wait for ever.
"""


class PodConnection:
    """The two directions of a TCP connection to a pod. There is no half-close."""

    def __init__(self, socket: WebSocket, what: str) -> None:
        self._socket = socket
        self._what = what
        self._streams = PortStreams()
        self._early = b""

    async def open(self, port: int) -> None:
        """Opens the connection; to be done first, once.

        Raises:
            StreamFailed: The node does not take it.
            Timeout: The node did not take it in time.
            Malformed: The node sends data and does not take it.
            Unavailable: The connection to the node broke.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + OPEN_TIMEOUT_S
        await self._socket.send(self._streams.open(port), OPEN_TIMEOUT_S)
        while not self._streams.opened:
            self._early += await self._next(end - clock())
            if len(self._early) > MAX_FRAME:
                raise Malformed(f"{self._what}: the node sends data and does not take the connection")

    async def send(self, data: bytes, timeout_s: float) -> None:
        """Sends bytes to the pod. Returns once most of them are under way.

        Raises:
            Timeout: The pod took nothing for `timeout_s`.
            Unavailable: The connection broke.
        """
        view = memoryview(data)
        for start in range(0, len(data), MAX_MESSAGE):
            await self._socket.send(self._streams.write(view[start : start + MAX_MESSAGE]), timeout_s)

    async def receive(self, timeout_s: float | None) -> bytes:
        """Returns the next bytes of the pod; empty once it has closed the connection.

        Raises:
            StreamFailed: Nothing listens on the port, or the node lost the connection to it.
            Timeout: None came within `timeout_s`.
            Unavailable: The connection to the node broke.
        """
        data, self._early = self._early, b""
        while not data and (self._streams.failure or not self._streams.ended):
            data = await self._next(timeout_s)
        return data

    async def ping(self) -> None:
        """Sends something that shows whether the node is still connected.

        Raises:
            Unavailable: The connection broke.
        """
        await self._socket.send(self._streams.ping(), None)

    async def _next(self, timeout_s: float | None) -> bytes:
        if self._streams.failure:
            raise self._streams.failure
        message = await self._socket.receive(timeout_s)
        if message is None:
            raise Unavailable(f"{self._what}: the connection ended before the pod's side did")
        received = self._streams.read(message)
        if received.answer:
            await self._socket.send(received.answer, OPEN_TIMEOUT_S)
        return received.data


@asynccontextmanager
async def connect_port(client: Client, pod: str, namespace: str, port: int) -> AsyncGenerator[PodConnection]:
    """Opens a connection to a port of a pod; closed at the end of the block.

    That nothing listens there shows only when the connection is read.

    Raises:
        NotFound: There is no such pod.
        Forbidden: The right to forward ports is missing.
        BadRequest: The pod does not run.
        Unsupported: The API server does not forward ports in this way.
        Timeout: The node did not take the connection in time.
    """
    request = port_forward(pod, namespace)
    with _told():
        async with client.upgrade(request, PORT_PROTOCOL) as socket:
            if socket.protocol != PORT_PROTOCOL:
                raise _unsupported()
            connection = PodConnection(socket, request.path)
            await connection.open(port)
            async with pinged(connection.ping, NODE_PING_PERIOD_S):
                yield connection


@contextmanager
def _told() -> Generator[None]:
    try:
        yield
    except BadRequest as error:
        if _OLDER in error.message:
            raise _unsupported() from error
        raise


def _unsupported() -> Unsupported:
    return Unsupported("the API server does not forward ports in websockets: its PortForwardWebsockets is off")
