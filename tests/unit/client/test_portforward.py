"""A pod's port as a local one: an HTTP client over it, cuts at any byte, nothing that listens."""

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from io import BytesIO

import aiohttp
import pytest
from aiohttp import web

from torchctl.client.cluster import Cluster
from torchctl.client.errors import RequestRefused
from torchctl.client.portforward import MAX_CONNECTIONS, PortForward, forward_port
from torchctl.client.reaching import reach
from torchctl.client.receiving import Receiver
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import ApiError, Malformed, NotFound, StreamFailed, Timeout, Unavailable
from torchctl.runtime.client.portforward import connect_port
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.kinds import Key
from torchctl.testing.podstreams import PodPorts

POD = Key("team", "train-sync-0")
PORT = 8081


@asynccontextmanager
async def serving(*routes: web.RouteDef) -> AsyncGenerator[int]:
    app = web.Application(client_max_size=2**26)
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def forwarding(ports: PodPorts, pod: Key = POD) -> AsyncGenerator[PortForward]:
    route = web.get("/api/v1/namespaces/{namespace}/pods/{pod}/portforward", ports.serve)
    async with (
        serving(route) as api,
        AiohttpTransport(Connection(f"http://127.0.0.1:{api}")) as transport,
        forward_port(Client(transport), pod.name, pod.namespace, PORT) as forward,
    ):
        yield forward


async def length(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


async def big(request: web.Request) -> web.Response:
    return web.Response(body=bytes(range(256)) * 2**13)


async def test_an_http_client_talks_to_the_pod() -> None:
    async with serving(web.patch("/", length), web.get("/big", big)) as inside:
        ports = PodPorts(open={(POD, PORT): inside})
        async with forwarding(ports) as forward, aiohttp.ClientSession(forward.url) as session:
            async with session.patch("/", data=BytesIO(bytes(2**22))) as answer:
                assert await answer.text() == str(2**22)
            async with session.get("/big") as answer:
                assert await answer.read() == bytes(range(256)) * 2**13
        assert (forward.failure, forward.answered) == (None, True)
        assert ports.connections == 1


@pytest.mark.parametrize("after", [1, 100, 2**17, 2**20])
async def test_an_upload_that_is_cut_fails_and_can_be_repeated(after: int) -> None:
    async with serving(web.patch("/", length)) as inside:
        ports = PodPorts(open={(POD, PORT): inside}, cut_after=[after])
        async with forwarding(ports) as forward, aiohttp.ClientSession(forward.url) as session:
            with pytest.raises(aiohttp.ClientError):
                await session.patch("/", data=BytesIO(bytes(2**21)))
            assert isinstance(forward.failure, Unavailable)
            async with session.patch("/", data=BytesIO(bytes(2**21))) as answer:
                assert await answer.text() == str(2**21)


async def test_a_port_on_which_nothing_listens_is_named() -> None:
    async with forwarding(PodPorts()) as forward, aiohttp.ClientSession(forward.url) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get("/")
        assert isinstance(forward.failure, StreamFailed)
        assert "connection refused" in str(forward.failure)
        assert not forward.answered


async def test_a_refusal_is_named_although_much_was_sent_meanwhile() -> None:
    async with forwarding(PodPorts()) as forward, aiohttp.ClientSession(forward.url) as session:
        for _ in range(5):
            with pytest.raises(aiohttp.ClientError):
                await session.patch("/", data=BytesIO(bytes(2**22)))
            assert isinstance(forward.failure, StreamFailed)


async def test_an_answer_arrives_although_the_node_fails_right_after_it() -> None:
    """A server that has refused an upload resets the connection on which more of it comes: the node says so at once."""
    answer = b"HTTP/1.1 422 Refused\r\nContent-Length: 3\r\n\r\nbad"

    async def refusing(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("SPDY/3.1+portforward.k8s.io",))
        await socket.prepare(request)
        await socket.receive_bytes()
        for stream in (1, 3):
            await socket.send_bytes(b"\x80\x03\x00\x02\x00\x00\x00\x04" + stream.to_bytes(4, "big"))
        await socket.receive_bytes()
        frames = ((3, 0, answer), (1, 0, b"write: broken pipe"), (1, 1, b""), (3, 1, b""))
        await socket.send_bytes(
            b"".join(number.to_bytes(4, "big") + bytes([fin, 0, 0, len(data)]) + data for number, fin, data in frames)
        )
        await socket.close()
        return socket

    async with (
        serving(web.get("/{path:.*}", refusing)) as api,
        AiohttpTransport(Connection(f"http://127.0.0.1:{api}")) as transport,
        forward_port(Client(transport), POD.name, POD.namespace, PORT) as forward,
        aiohttp.ClientSession(forward.url) as session,
        session.patch("/", data=b"content") as said,
    ):
        assert (said.status, await said.read()) == (422, b"bad")


@pytest.mark.parametrize(
    ("frame", "is_answered", "error"),
    [
        pytest.param(b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x02", True, Timeout, id="pings"),
        pytest.param(b"\x00\x00\x00\x03\x00\x01\x00\x00" + bytes(2**16), False, Malformed, id="data"),
    ],
)
async def test_node_that_never_takes_a_connection_holds_nobody_up(
    frame: bytes, is_answered: bool, error: type[ApiError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchctl.runtime.client.portforward.OPEN_TIMEOUT_S", 0.5)

    async def talking(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("SPDY/3.1+portforward.k8s.io",))
        await socket.prepare(request)
        with suppress(ConnectionError, TypeError):
            while True:
                await socket.send_bytes(frame)
                if is_answered:
                    await socket.receive_bytes()
        return socket

    async with (
        serving(web.get("/{path:.*}", talking)) as api,
        AiohttpTransport(Connection(f"http://127.0.0.1:{api}")) as transport,
        asyncio.timeout(10),
    ):
        with pytest.raises(error):
            async with connect_port(Client(transport), POD.name, POD.namespace, PORT):
                pass


async def test_api_server_that_does_not_tunnel_is_named_at_once() -> None:
    """With its feature gate off it hands the websocket on to the kubelet, and an older one expects another protocol."""

    async def older(request: web.Request) -> web.Response:
        return web.Response(status=400, text='unable to upgrade: query parameter "port" is required')

    async def other(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket

    for handler in (older, other):
        async with (
            serving(web.get("/{path:.*}", handler)) as api,
            AiohttpTransport(connection := Connection(f"http://127.0.0.1:{api}")) as transport,
        ):
            cluster = Cluster(Client(transport), connection, POD.namespace, "nobody")
            with pytest.raises(RequestRefused, match="its PortForwardWebsockets is off"):
                async with reach(cluster, POD.namespace, Receiver(POD.name, "uid")):
                    pass


async def test_a_connection_that_is_cut_is_reset() -> None:
    """An end without a reset would be the regular end of an answer that has no length."""

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"begun")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    ports = PodPorts(open={(POD, PORT): server.sockets[0].getsockname()[1]}, cut_after=[1])
    async with server, forwarding(ports) as forward:
        host, port = forward.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.readexactly(5) == b"begun"
        writer.write(b"one")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        assert isinstance(forward.failure, Unavailable)


async def test_a_pod_that_is_gone_is_named() -> None:
    async def gone(request: web.Request) -> web.Response:
        body = {"kind": "Status", "reason": "NotFound", "message": 'pods "train-sync-0" not found'}
        return web.json_response(body, status=404)

    async with (
        serving(web.get("/{path:.*}", gone)) as api,
        AiohttpTransport(Connection(f"http://127.0.0.1:{api}")) as transport,
        forward_port(Client(transport), POD.name, POD.namespace, PORT) as forward,
        aiohttp.ClientSession(forward.url) as session,
    ):
        with pytest.raises(aiohttp.ClientError):
            await session.get("/")
        assert isinstance(forward.failure, NotFound)


async def test_client_that_resets_before_a_failure_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """There is nobody to reset then. An error in the task of a connection would be a traceback on the terminal."""
    asked, goes = asyncio.Event(), asyncio.Event()

    async def late(request: web.Request) -> web.Response:
        asked.set()
        await goes.wait()
        return web.json_response({"kind": "Status", "reason": "NotFound", "message": "gone"}, status=404)

    async with (
        serving(web.get("/{path:.*}", late)) as api,
        AiohttpTransport(Connection(f"http://127.0.0.1:{api}")) as transport,
        forward_port(Client(transport), POD.name, POD.namespace, PORT) as forward,
    ):
        host, port = forward.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            await asked.wait()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        (serving_it,) = (task for task in asyncio.all_tasks() if "PortForward._serve" in repr(task))
        goes.set()
        await asyncio.wait([serving_it])
        del serving_it
        assert isinstance(forward.failure, NotFound)
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_no_more_than_a_few_connections_are_open() -> None:
    async with serving(web.get("/big", big)) as inside:
        ports = PodPorts(open={(POD, PORT): inside})
        async with forwarding(ports) as forward:
            host, port = forward.url.removeprefix("http://").split(":")
            opened = [await asyncio.open_connection(host, int(port)) for _ in range(MAX_CONNECTIONS + 1)]
            assert await opened[-1][0].read() == b""
            for _, writer in opened:
                writer.close()


@pytest.mark.parametrize("turns", range(3, 8))  # before, Python 3.11 itself loses what it has accepted
async def test_a_connection_that_comes_at_the_end_is_closed(turns: int) -> None:
    """So many turns of the event loop before: it may have been accepted, and nobody has begun to serve it."""
    ports = PodPorts()
    async with forwarding(ports) as forward:
        host, port = forward.url.removeprefix("http://").split(":")
        client = socket.create_connection((host, int(port)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await forward.stop()
        assert "connections=0" in repr(forward)
        with client:
            client.settimeout(10)
            with suppress(ConnectionResetError):
                assert await asyncio.to_thread(client.recv, 1) == b""
        assert "connections=0" in repr(forward)
    assert ports.connections == 0
