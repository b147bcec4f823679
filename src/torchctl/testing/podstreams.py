"""Plays the streams of pods as a kubelet serves them: ports by SPDY, with cuts where a test wants them."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import WSCloseCode, web

from torchctl.runtime.kinds import Key

__all__ = ["PodPorts"]

TUNNEL, DIRECT = "SPDY/3.1+portforward.k8s.io", "SPDY/3.1"
FIN = 1
SYN_STREAM, SYN_REPLY, PING = 1, 2, 6


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

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Handles `/portForward/{namespace}/{pod}` of a kubelet, or the same path of an API server, by a websocket."""
        key = Key(request.match_info["namespace"], request.match_info["pod"])
        carrier: _Carrier = _WebSocket() if request.headers.get("Upgrade", "").lower() == "websocket" else _Direct()
        response = await carrier.start(request)
        self.connections += 1
        node = _Node(carrier)
        port = await node.opened()
        try:
            await self._connect(request, node, key, port)
        except OSError as error:
            await node.fail(f"error forwarding port {port} to pod {key}: {error}")
        with suppress(ConnectionError):
            await node.end()
        await carrier.stop()
        return response

    async def _connect(self, request: web.Request, node: "_Node", key: Key, port: int) -> None:
        if (key, port) not in self.open:
            raise ConnectionRefusedError(f"dial tcp4 127.0.0.1:{port}: connect: connection refused")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.open[key, port])
        downwards = asyncio.create_task(_downwards(reader, node))
        upwards = asyncio.create_task(self._upwards(request, node, writer))
        try:
            await asyncio.wait({downwards, upwards}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (downwards, upwards):
                task.cancel()
            await asyncio.gather(downwards, upwards, return_exceptions=True)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _upwards(self, request: web.Request, node: "_Node", writer: asyncio.StreamWriter) -> None:
        left = self.cut_after.pop(0) if self.cut_after else None
        async for data in node.data():
            if left is not None and len(data) >= left:
                writer.write(data[:left])
                await writer.drain()
                assert request.transport is not None
                request.transport.abort()
                return
            left = None if left is None else left - len(data)
            writer.write(data)
            await writer.drain()


async def _downwards(reader: asyncio.StreamReader, node: "_Node") -> None:
    while data := await reader.read(2**15):
        await node.send(data)


class _Node:
    """The node's side of one connection: two streams, whose frames come in any pieces."""

    def __init__(self, carrier: "_Carrier") -> None:
        self._carrier = carrier
        self._frames = self._split()
        self._inflate = zlib.decompressobj()
        self._deflate = zlib.compressobj()
        self._streams: dict[str, int] = {}

    async def opened(self) -> int:
        """Takes the two streams, with a ping that has to be answered in between; returns the port."""
        headers: dict[str, str] = {}
        await self._control(PING, (2).to_bytes(4, "big"))
        answered = False
        while len(self._streams) < 2 or not answered:
            head, content = await anext(self._frames)
            if _kind(head) == PING:
                answered = content == (2).to_bytes(4, "big")
            elif _kind(head) == SYN_STREAM:
                headers = _headers(self._inflate.decompress(content[10:]))
                stream = self._streams[headers["streamtype"]] = int.from_bytes(content[:4], "big")
                none = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
                await self._control(SYN_REPLY, stream.to_bytes(4, "big") + none)
        return int(headers["port"])

    async def data(self) -> AsyncIterator[bytes]:
        async for head, content in self._frames:
            if _kind(head) == PING:
                await self._control(PING, content)
            elif int.from_bytes(head[:4], "big") == self._streams["data"]:
                yield content

    async def send(self, data: bytes) -> None:
        await self._write(self._streams["data"], data)

    async def fail(self, message: str) -> None:
        await self._write(self._streams["error"], message.encode())

    async def end(self) -> None:
        await self._write(self._streams["error"], b"", FIN)
        await self._write(self._streams["data"], b"", FIN)

    async def _write(self, stream: int, data: bytes, flags: int = 0) -> None:
        await self._carrier.write(stream.to_bytes(4, "big") + bytes([flags]) + len(data).to_bytes(3, "big") + data)

    async def _control(self, kind: int, content: bytes) -> None:
        await self._carrier.write(b"\x80\x03\x00" + bytes([kind]) + len(content).to_bytes(4, "big") + content)

    async def _split(self) -> AsyncIterator[tuple[bytes, bytes]]:
        buffer = b""
        while received := await self._carrier.read():
            buffer += received
            while len(buffer) >= 8 and len(buffer) >= (end := 8 + int.from_bytes(buffer[5:8], "big")):
                yield buffer[:8], buffer[8:end]
                buffer = buffer[end:]


def _kind(head: bytes) -> int:
    """Returns the type of a control frame; 0 of one with data."""
    return int.from_bytes(head[2:4], "big") if head[0] & 0x80 else 0


def _headers(block: bytes) -> dict[str, str]:
    texts, at = list[str](), 4
    for _ in range(2 * int.from_bytes(block[:4], "big")):
        size = int.from_bytes(block[at : at + 4], "big")
        texts.append(block[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return dict(zip(texts[::2], texts[1::2], strict=True))


class _Carrier(Protocol):
    """What carries the bytes of a connection."""

    async def start(self, request: web.Request) -> web.StreamResponse: ...

    async def read(self) -> bytes:
        """Returns what came next; empty at the end."""

    async def write(self, data: bytes) -> None: ...

    async def stop(self) -> None: ...


class _WebSocket:
    """As an API server takes it from a client."""

    async def start(self, request: web.Request) -> web.StreamResponse:
        self._socket = web.WebSocketResponse(protocols=(TUNNEL,), timeout=0.1)
        await self._socket.prepare(request)
        return self._socket

    async def read(self) -> bytes:
        with suppress(TypeError):  # another kind of message: the end
            return await self._socket.receive_bytes()
        return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send_bytes(data)

    async def stop(self) -> None:
        await self._socket.close(code=WSCloseCode.OK)


class _Direct:
    """As an API server asks a kubelet: the HTTP connection itself carries the frames from then on."""

    def __init__(self) -> None:
        self._received = asyncio.Queue[bytes]()

    async def start(self, request: web.Request) -> web.StreamResponse:
        headers = {"Connection": "Upgrade", "Upgrade": DIRECT, "X-Stream-Protocol-Version": "portforward.k8s.io"}
        response = web.StreamResponse(status=101, headers=headers)
        response.force_close()
        parser: Any = self  # aiohttp hands on what comes by two methods, and has a websocket's reader in mind
        request.protocol.set_parser(parser)  # before the answer: frames may follow it at once
        assert request.transport is not None
        self._transport = request.transport
        await response.prepare(request)
        return response

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._received.put_nowait(bytes(data))
        return False, b""

    def feed_eof(self) -> None:
        self._received.put_nowait(b"")

    async def read(self) -> bytes:
        return await self._received.get()

    async def write(self, data: bytes) -> None:
        if self._transport.is_closing():
            raise ConnectionResetError("the connection was cut")
        self._transport.write(data)

    async def stop(self) -> None:
        return
