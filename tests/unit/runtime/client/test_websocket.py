"""Websockets against a real server on the loopback interface: refusals, ends, cuts, silence, slow peers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.credentials import Issued, PluginCredentials
from torchctl.runtime.client.errors import Forbidden, Timeout, Unavailable
from torchctl.runtime.client.portforward import PORT_PROTOCOL
from torchctl.runtime.client.requests import HttpRequest, port_forward
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.client.websocket import WebSocket

Talk = Callable[[web.WebSocketResponse], Awaitable[None]]
REQUEST = port_forward("trainer", "team")


@asynccontextmanager
async def answering(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def talking(talk: Talk) -> AsyncGenerator[WebSocket]:
    """A websocket to a server that does this with its end."""

    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=(PORT_PROTOCOL,), timeout=0.1)
        await socket.prepare(request)
        await talk(socket)
        return socket

    async with (
        answering(handler) as url,
        AiohttpTransport(Connection(url)) as transport,
        transport.upgrade(REQUEST, PORT_PROTOCOL) as socket,
    ):
        yield socket


async def test_messages_go_both_ways_under_the_protocol() -> None:
    async def echo(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            await socket.send_bytes(message.data * 2)

    async with talking(echo) as socket:
        assert socket.protocol == PORT_PROTOCOL
        await socket.send(b"ab", 5.0)
        assert await socket.receive(5.0) == b"abab"


async def test_a_close_that_was_said_is_an_end() -> None:
    async def close(socket: web.WebSocketResponse) -> None:
        await socket.close()

    async with talking(close) as socket:
        assert await socket.receive(5.0) is None


async def test_an_end_without_a_word_is_a_cut() -> None:
    async def hang_up(socket: web.WebSocketResponse) -> None:
        assert socket._req is not None
        assert socket._req.transport is not None
        socket._req.transport.close()

    async with talking(hang_up) as socket:
        with pytest.raises(Unavailable, match="the connection broke"):
            await socket.receive(5.0)


async def test_an_unusual_close_names_its_reason() -> None:
    async def fail(socket: web.WebSocketResponse) -> None:
        await socket.close(code=1011, message=b"etcd is away")

    async with talking(fail) as socket:
        with pytest.raises(Unavailable, match="1011 etcd is away"):
            await socket.receive(5.0)


async def test_silence_ends_at_the_deadline() -> None:
    async def listen(socket: web.WebSocketResponse) -> None:
        await socket.receive()

    async with talking(listen) as socket:
        with pytest.raises(Timeout):
            await socket.receive(0.01)


async def flood(socket: WebSocket) -> None:
    for _ in range(1000):
        await socket.send(bytes(2**17), 0.2)


async def test_deaf_peer_holds_the_sender_until_its_deadline() -> None:
    enough = asyncio.Event()

    async def stall(socket: web.WebSocketResponse) -> None:
        assert socket._req is not None
        assert socket._req.transport is not None
        socket._req.transport.pause_reading()
        await enough.wait()

    async with talking(stall) as socket:
        with pytest.raises(Timeout):
            await flood(socket)
        enough.set()


async def test_a_refused_handshake_is_the_server_s_own_error() -> None:
    async def refuse(request: web.Request) -> web.Response:
        status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "you may not"}
        return web.json_response(status, status=403)

    async with answering(refuse) as url, AiohttpTransport(Connection(url)) as transport:
        with pytest.raises(Forbidden, match="you may not"):
            async with Client(transport).upgrade(REQUEST, PORT_PROTOCOL):
                pass


async def test_a_401_is_followed_by_one_attempt_with_fresh_credentials() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        if seen[-1] == "Bearer old":
            return web.Response(status=401)
        socket = web.WebSocketResponse(protocols=(PORT_PROTOCOL,))
        await socket.prepare(request)
        await socket.close()
        return socket

    async def fetch() -> Issued:
        return Issued("Bearer new")

    credentials = PluginCredentials(fetch, Issued("Bearer old"))
    credentials._fetched_at = float("-inf")  # they were not fetched just now
    async with answering(handler) as url:
        connection = Connection(url, credentials=credentials)
        async with (
            AiohttpTransport(connection) as transport,
            transport.upgrade(REQUEST, PORT_PROTOCOL) as socket,
        ):
            assert await socket.receive(5.0) is None
    assert seen == ["Bearer old", "Bearer new"]


async def test_a_server_that_never_answers_is_left_at_the_deadline() -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    request = HttpRequest("GET", REQUEST.path, "get", REQUEST.query, (), None, 0.05)
    async with answering(hang) as url, AiohttpTransport(Connection(url)) as transport:
        with pytest.raises(Timeout):
            async with transport.upgrade(request, PORT_PROTOCOL):
                pass


async def test_a_transport_without_streams_is_a_defect() -> None:
    with pytest.raises(TypeError, match="carries no streams"):
        async with Client(object()).upgrade(REQUEST, PORT_PROTOCOL):  # type: ignore[arg-type]  # that is the defect
            pass
