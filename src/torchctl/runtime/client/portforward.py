"""One TCP connection to a pod's port, through the API server.

It arrives at the pod's loopback interface, so it reaches what listens there and nothing else can. RBAC: `get` on
pods/portforward, and since Kubernetes 1.35 `create` too.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from torchctl.runtime.client.channels import PORT_PROTOCOL, PortMessages
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.requests import port_forward
from torchctl.runtime.client.websocket import WebSocket

__all__ = ["MAX_MESSAGE", "PodConnection", "connect_port"]

MAX_MESSAGE = 2**17
"""The maximum bytes of a message that we send: the node keeps a whole message in memory before it passes it on."""


class PodConnection:
    """The two directions of a TCP connection to a pod. There is no half-close."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._messages = PortMessages()

    async def send(self, data: bytes, timeout_s: float) -> None:
        """Sends bytes to the pod. Returns once most of them are under way.

        Raises:
            Timeout: The pod took nothing for `timeout_s`.
            Unavailable: The connection broke.
        """
        view = memoryview(data)
        for start in range(0, len(data), MAX_MESSAGE):
            await self._socket.send(self._messages.write(view[start : start + MAX_MESSAGE]), timeout_s)

    async def receive(self, timeout_s: float | None) -> bytes:
        """Returns the next bytes of the pod; empty once it has closed the connection.

        Raises:
            StreamFailed: Nothing listens on the port, or the node lost the connection to it.
            Timeout: None came within `timeout_s`.
            Unavailable: The connection to the node broke.
        """
        while (message := await self._socket.receive(timeout_s)) is not None:
            if data := self._messages.read(message):
                return data
        return b""


@asynccontextmanager
async def connect_port(client: Client, pod: str, namespace: str, port: int) -> AsyncGenerator[PodConnection]:
    """Opens a connection to a port of a pod; closed at the end of the block.

    That nothing listens there shows only when the connection is read.

    Raises:
        NotFound: There is no such pod.
        Forbidden: The right to forward ports is missing.
        BadRequest: The pod does not run.
    """
    async with client.upgrade(port_forward(pod, namespace, port), PORT_PROTOCOL) as socket:
        yield PodConnection(socket)
