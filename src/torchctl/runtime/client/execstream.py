"""A command in a running container, through the API server.

RBAC: `get` on pods/exec, and since Kubernetes 1.35 `create` too.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from torchctl.runtime.client.channels import EXEC_PROTOCOL, Ended, ExecMessages, Output
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Unavailable
from torchctl.runtime.client.requests import pod_exec
from torchctl.runtime.client.websocket import WebSocket

__all__ = ["Command", "run_command"]

MAX_MESSAGE = 2**16


class Command:
    """A running command. Read it until it has ended: its output is held back until somebody takes it."""

    def __init__(self, socket: WebSocket, what: str) -> None:
        self._socket = socket
        self._what = what
        self._messages = ExecMessages()

    async def write(self, data: bytes, timeout_s: float) -> None:
        """Writes to the command's input. Raises Timeout if it takes nothing for `timeout_s`, Unavailable on a cut."""
        view = memoryview(data)
        for start in range(0, len(data), MAX_MESSAGE):
            await self._socket.send(self._messages.stdin(bytes(view[start : start + MAX_MESSAGE])), timeout_s)

    async def end_input(self, timeout_s: float) -> None:
        await self._socket.send(self._messages.end_stdin(), timeout_s)

    async def resize(self, columns: int, rows: int, timeout_s: float) -> None:
        """Tells the terminal of the command its size."""
        await self._socket.send(self._messages.resize(columns, rows), timeout_s)

    async def read(self, timeout_s: float | None) -> Output | Ended:
        """Returns what the command wrote next, and at last its exit code.

        Raises:
            StreamFailed: The command could not be started.
            Timeout: Nothing came within `timeout_s`.
            Unavailable: The connection broke: whether the command still runs is unknown.
        """
        while (message := await self._socket.receive(timeout_s)) is not None:
            if (said := self._messages.read(message)) is not None:
                return said
        raise Unavailable(f"{self._what}: the connection ended before the command did")


@asynccontextmanager
async def run_command(
    client: Client,
    pod: str,
    namespace: str,
    command: Sequence[str],
    *,
    container: str = "",
    stdin: bool = False,
    tty: bool = False,
) -> AsyncGenerator[Command]:
    """Starts a command in a container of a pod; the connection is closed at the end of the block.

    A command whose connection is closed loses its input and its output, and is not killed.

    Raises:
        NotFound: There is no such pod.
        Forbidden: The right to run commands is missing.
        BadRequest: The container does not run.
    """
    request = pod_exec(pod, namespace, command, container=container, stdin=stdin, tty=tty)
    async with client.upgrade(request, EXEC_PROTOCOL) as socket:
        yield Command(socket, request.path)
