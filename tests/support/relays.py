"""Relays in front of an HTTP server: each request passes a gate on its way there, and each answer on its way back."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from gates import Gate

__all__ = ["relay"]

RANDOM = re.compile(r"[0-9a-f]{8,}")
CHUNK = 2**16
NOT_PASSED_ON = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "content-length"})


class _Relay:
    def __init__(self, gate: Gate, port: int, session: aiohttp.ClientSession) -> None:
        self._gate, self._port, self._session = gate, port, session

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except (aiohttp.ClientError, ConnectionError):  # as if nothing was between the two
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

    async def _answer(self, request: web.Request) -> web.Response:
        whole = None if request.method == "PATCH" else await request.read()
        name = _name(request, whole)
        self._pass(f"before {name}")
        url = f"http://127.0.0.1:{self._port}{request.raw_path}"
        headers = {name: value for name, value in request.headers.items() if name.lower() not in NOT_PASSED_ON}
        if whole is None and "Content-Length" in request.headers:
            headers["Content-Length"] = request.headers["Content-Length"]
        body = self._chunks(request, name) if whole is None else whole
        async with self._session.request(request.method, url, headers=headers, data=body) as answer:
            content = await answer.read()
            self._pass(f"after {name}{_order(request, content)}")
            passed = {name: value for name, value in answer.headers.items() if name.lower() not in NOT_PASSED_ON}
            return web.Response(status=answer.status, headers=passed, body=content)

    async def _chunks(self, request: web.Request, name: str) -> AsyncIterator[bytes]:
        async for chunk in request.content.iter_chunked(CHUNK):
            yield chunk
            self._pass(f"within {name}")

    def _pass(self, step: str) -> None:
        if not self._gate.passes(step):
            raise ConnectionResetError(step)


def _name(request: web.Request, body: bytes | None) -> str:
    """What a request is called: a report of a launcher by what it says, any other by its path."""
    if request.method == "POST" and request.path.startswith("/launcher/") and body:
        report = json.loads(body)
        words = ["report", str(report["index"]), report["state"]]
        return " ".join([*words, *(["staged"] if report["staged"] else []), *report["order"].split()[:1]])
    return f"{request.method} {RANDOM.sub('*', request.path)}"


def _order(request: web.Request, content: bytes) -> str:
    is_order = request.method == "POST" and request.path.startswith("/launcher/") and content.startswith(b"{")
    return f": {json.loads(content).get('kind')}" if is_order else ""


@asynccontextmanager
async def relay(gate: Gate, port: int) -> AsyncIterator[int]:
    """Yields the port of a relay to a server on another port of this machine, which may come and go."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", _Relay(gate, port, session).handle)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, auto_decompress=False, shutdown_timeout=0.1
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()
