"""The protocol of a command in a container over a websocket, without I/O.

A message is one byte with the number of a channel, then data. Source: k8s.io/streaming/pkg/httpstream/wsstream of
Kubernetes 1.36; docs/design/pod-streams.md says what 1.31 to 1.36 have in common.
"""

from dataclasses import dataclass
from enum import IntEnum

import msgspec

from torchctl.runtime.client.errors import Malformed, StreamFailed

__all__ = ["EXEC_PROTOCOL", "Channel", "Ended", "ExecMessages", "Output"]

EXEC_PROTOCOL = "v5.channel.k8s.io"
"""The API server speaks it since 1.30; unlike v4 it can end the command's input."""

_CLOSE = 255


class Channel(IntEnum):
    """The channels of a command."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    RESIZE = 4


@dataclass(frozen=True, slots=True)
class Output:
    """What a command wrote."""

    channel: Channel
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command."""

    exit_code: int


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    """metav1.Status, with the exit code in a cause."""

    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class ExecMessages:
    """Reads and writes the messages of one command."""

    def stdin(self, data: bytes) -> bytes:
        return bytes([Channel.STDIN]) + data

    def end_stdin(self) -> bytes:
        """Returns the message that ends the command's input."""
        return bytes([_CLOSE, Channel.STDIN])

    def resize(self, columns: int, rows: int) -> bytes:
        """Returns the message that tells a terminal its size."""
        return bytes([Channel.RESIZE]) + msgspec.json.encode({"Width": columns, "Height": rows})

    def read(self, message: bytes) -> Output | Ended | None:
        """Returns what a message says; None if it carries nothing.

        Raises:
            StreamFailed: The command could not be started, or the node lost it.
        """
        channel, data = _split(message)
        if channel == _CLOSE or not data:
            return None
        match channel:
            case Channel.STDOUT | Channel.STDERR:
                return Output(Channel(channel), data)
            case Channel.STATUS:
                return _ended(data)
        raise Malformed(f"a command has no channel {channel} to read")


def _ended(data: bytes) -> Ended:
    try:
        status = msgspec.json.decode(data, type=_Status)
    except msgspec.MsgspecError as error:
        raise Malformed(f"the command's status cannot be read: {error}") from error
    if status.status == "Success":
        return Ended(0)
    causes = status.details.causes if status.details is not None else ()
    codes = [cause.message for cause in causes if cause.reason == "ExitCode"]
    if status.reason == "NonZeroExitCode" and codes and codes[0].isdecimal():
        return Ended(int(codes[0]))
    raise StreamFailed(status.message or status.reason)


def _split(message: bytes) -> tuple[int, bytes]:
    if not message:
        raise Malformed("a message without a channel")
    return message[0], message[1:]
