"""One TCP connection to a pod's port as SPDY/3.1 carries it, without I/O.

A connection is two streams, both opened by us: on the first the node tells what went wrong, the second carries the
data. Sources: the SPDY protocol draft 3.1; k8s.io/streaming/pkg/httpstream/spdy and github.com/moby/spdystream for
what the peers of a forwarded port do with it. They use no flow control: a peer that does not read holds up the
connection below, and so its sender.
"""

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from torchctl.runtime.client.errors import Malformed, StreamFailed

__all__ = ["MAX_FRAME", "PortStreams", "Received"]

MAX_FRAME = 2**20
"""The maximum bytes of a frame that is accepted; nodes send 32 KiB of data at a time."""
_MAX_ERROR = 2**14

_CONTROL, _VERSION = 0x8000, 3
_FIN = 1
_HEAD = struct.Struct("!IBBH")
"""Stream or version and type; flags; the length in 24 bits."""
_ERRORS, _DATA = 1, 3
"""Streams of whoever opens the connection have odd numbers, and so have its pings."""


class _Type(IntEnum):
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    PING = 6


@dataclass(slots=True)
class Received:
    """What some bytes of the peer came to.

    Attributes:
        data: What the pod sent.
        answer: What has to be sent back now.
    """

    data: bytes = b""
    answer: bytes = b""


class PortStreams:
    """Reads and writes the frames of one connection.

    Attributes:
        opened: The node has taken both streams. What is sent earlier is lost.
        ended: The pod's side has closed the connection in an orderly way.
        failure: The node could not reach the port, or lost the connection. It comes after the data that was read with
            it: a pod that refuses what it is sent answers first, and then closes the connection on what still comes.
    """

    def __init__(self) -> None:
        self.ended = False
        self.failure: StreamFailed | None = None
        self._pings = 0
        self._waiting = {_ERRORS, _DATA}
        self._buffer = bytearray()
        self._error = bytearray()

    @property
    def opened(self) -> bool:
        return not self._waiting

    def open(self, port: int) -> bytes:
        """Returns the frames that ask for the connection. We say nothing on the stream for errors."""
        headers = zlib.compressobj()
        frames = bytearray()
        for stream, kind, flags in ((_ERRORS, "error", _FIN), (_DATA, "data", 0)):
            named = (("streamtype", kind), ("port", str(port)), ("requestid", "0"))
            block = headers.compress(_block(named)) + headers.flush(zlib.Z_SYNC_FLUSH)
            frames += _control(_Type.SYN_STREAM, struct.pack("!IIH", stream, 0, 0) + block, flags)
        return bytes(frames)

    def write(self, data: bytes | memoryview) -> bytes:
        """Returns the frame that carries `data` to the pod."""
        return _HEAD.pack(_DATA, 0, len(data) >> 16, len(data) & 0xFFFF) + data

    def ping(self) -> bytes:
        """Returns a frame that the node answers, which changes nothing."""
        self._pings += 1
        return _control(_Type.PING, struct.pack("!I", 2 * self._pings - 1 & 0x7FFFFFFF))

    def read(self, received: bytes) -> Received:
        """Takes what came from the node; it may begin and end anywhere.

        Raises:
            Malformed: The peer does not speak SPDY.
        """
        self._buffer += received
        data, answer, at = bytearray(), bytearray(), 0
        with memoryview(self._buffer) as view:
            while len(view) - at >= _HEAD.size:
                name, flags, high, low = _HEAD.unpack_from(view, at)
                end = at + _HEAD.size + (high << 16 | low)
                if end - at > MAX_FRAME:
                    raise Malformed(f"the node sent a frame of {end - at} bytes")
                if end > len(view):
                    break
                content = view[at + _HEAD.size : end]
                if name & _CONTROL << 16:
                    answer += self._control(name, flags, content)
                else:
                    data += self._data(name, flags, content)
                content.release()
                at = end
        del self._buffer[:at]
        return Received(bytes(data), bytes(answer))

    def _control(self, name: int, flags: int, content: memoryview) -> bytes:
        if name >> 16 != _CONTROL | _VERSION:
            raise Malformed("the node does not speak SPDY/3.1")
        kind = name & 0xFFFF
        if kind == _Type.PING:
            return b"" if _number(content) % 2 else _control(_Type.PING, bytes(content), flags)
        if kind == _Type.SYN_REPLY:
            self._waiting.discard(_number(content))
            self._finish(_number(content), flags)
        elif kind == _Type.RST_STREAM:
            self._fail("the node has reset the connection to the pod")
        return b""

    def _data(self, stream: int, flags: int, content: memoryview) -> bytes:
        if stream == _ERRORS:
            self._error += content[: _MAX_ERROR - len(self._error)]
        self._finish(stream, flags)
        return bytes(content) if stream == _DATA else b""

    def _finish(self, stream: int, flags: int) -> None:
        if not flags & _FIN:
            return
        if self._error:
            self._fail("")
        self.ended = self.ended or stream == _DATA

    def _fail(self, otherwise: str) -> None:
        said = self._error.decode(errors="replace").strip()
        self.failure = self.failure or StreamFailed(said or otherwise)


def _control(kind: _Type, content: bytes, flags: int = 0) -> bytes:
    return _HEAD.pack((_CONTROL | _VERSION) << 16 | kind, flags, len(content) >> 16, len(content) & 0xFFFF) + content


def _block(named: tuple[tuple[str, str], ...]) -> bytes:
    """Returns headers before their compression. The dictionary that SPDY has for it is optional for a reader."""
    texts = (text.encode() for pair in named for text in pair)
    return struct.pack("!I", len(named)) + b"".join(struct.pack("!I", len(text)) + text for text in texts)


def _number(content: memoryview) -> int:
    if len(content) < 4:
        raise Malformed("the node sent a frame that is too short")
    return int.from_bytes(content[:4], "big") & 0x7FFFFFFF
