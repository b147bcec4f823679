"""Plays the streams of pods as a kubelet serves them: ports by websocket, with cuts where a test wants them."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from aiohttp import WSCloseCode, WSMsgType, web

from torchctl.runtime.kinds import Key

__all__ = ["PodPorts"]

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = b"\x00", b"\x01"


@dataclass(slots=True)
class PodPorts:
    """The ports on which pods listen, each a TCP port of this machine.

    Attributes:
        open: The local TCP port behind a port of a pod.
        cut_after: For each further connection, the bytes towards the pod after which it is cut; empty: none is.
        connections: How many were made.
    """

    open: dict[tuple[Key, int], int] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)
    connections: int = 0

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Handles `/portForward/{namespace}/{pod}` of a kubelet, with the port in the query."""
        key = Key(request.match_info["namespace"], request.match_info["pod"])
        # The API server is asked for `ports`, and asks the kubelet for `port`.
        port = int(request.query.get("port") or request.query["ports"])
        socket = web.WebSocketResponse(protocols=(PROTOCOL,), timeout=0.1)
        await socket.prepare(request)
        self.connections += 1
        announced = port.to_bytes(2, "little")
        await socket.send_bytes(DATA + announced)
        await socket.send_bytes(ERROR + announced)
        try:
            await self._connect(request, socket, key, port)
        except OSError as error:
            await socket.send_bytes(ERROR + f"error forwarding port {port} to pod {key}: {error}".encode())
        await socket.close(code=WSCloseCode.OK)
        return socket

    async def _connect(self, request: web.Request, socket: web.WebSocketResponse, key: Key, port: int) -> None:
        if (key, port) not in self.open:
            raise ConnectionRefusedError(f"dial tcp4 127.0.0.1:{port}: connect: connection refused")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.open[key, port])
        downwards = asyncio.create_task(_downwards(reader, socket))
        upwards = asyncio.create_task(self._upwards(request, socket, writer))
        try:
            await asyncio.wait({downwards, upwards}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (downwards, upwards):
                task.cancel()
            await asyncio.gather(downwards, upwards, return_exceptions=True)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _upwards(self, request: web.Request, socket: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
        left = self.cut_after.pop(0) if self.cut_after else None
        async for message in socket:
            assert message.type is WSMsgType.BINARY, message
            data = message.data[1:]
            if left is not None and len(data) >= left:
                writer.write(data[:left])
                await writer.drain()
                assert request.transport is not None
                request.transport.abort()
                return
            left = None if left is None else left - len(data)
            writer.write(data)
            await writer.drain()


async def _downwards(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    while data := await reader.read(2**15):
        await socket.send_bytes(DATA + data)
