"""Runs the commands of pods on this machine, as a kubelet serves them by websocket (v5.channel.k8s.io)."""

import asyncio
import json
from asyncio.subprocess import PIPE, Process

from aiohttp import WSCloseCode, web

__all__ = ["serve_command"]

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255


async def serve_command(request: web.Request) -> web.WebSocketResponse:
    """Handles a request for exec, with the command in the query. Terminals are not played."""
    socket = web.WebSocketResponse(protocols=(PROTOCOL,), timeout=0.1)
    await socket.prepare(request)
    await socket.send_bytes(bytes([STDOUT]))
    try:
        process = await asyncio.create_subprocess_exec(
            *request.query.getall("command"), stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
    except FileNotFoundError as error:
        await _end(socket, {"status": "Failure", "reason": "InternalError", "message": f"{error.filename}: not found"})
        return socket
    feeding = asyncio.create_task(_feed(socket, process))
    await asyncio.gather(_carry(socket, process, STDOUT), _carry(socket, process, STDERR))
    code = await process.wait()
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    causes = [{"reason": "ExitCode", "message": str(code)}]
    failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    await _end(socket, failure if code else {"status": "Success"})
    return socket


async def _feed(socket: web.WebSocketResponse, process: Process) -> None:
    assert process.stdin is not None
    async for message in socket:
        channel, data = message.data[0], message.data[1:]
        if channel == STDIN:
            process.stdin.write(data)
            await process.stdin.drain()
        elif channel == CLOSE:
            process.stdin.close()


async def _carry(socket: web.WebSocketResponse, process: Process, channel: int) -> None:
    stream = process.stdout if channel == STDOUT else process.stderr
    assert stream is not None
    while data := await stream.read(2**15):
        await socket.send_bytes(bytes([channel]) + data)


async def _end(socket: web.WebSocketResponse, status: object) -> None:
    await socket.send_bytes(bytes([STATUS]) + json.dumps(status).encode())
    await socket.close(code=WSCloseCode.OK)
