"""The transport against a real server on the loopback interface, which misbehaves in every way there is."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from torchctl.runtime.client import requests, sockets
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import NotLeader, Timeout, Unavailable
from torchctl.runtime.client.exchange import RequestMetrics
from torchctl.runtime.client.impersonation import Impersonation
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.kinds import LEASE
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.settings import ClientSettings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RawHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

GET = HttpRequest("GET", "/api/v1/pods", "list", (("limit", "1"),))
WATCH = HttpRequest("GET", "/api/v1/pods", "watch", (("watch", "true"),))
WRITES = [
    HttpRequest("POST", "/api/v1/namespaces/n/pods", "create", body=b"{}"),
    HttpRequest("PUT", "/api/v1/namespaces/n/pods/p", "update", body=b"{}"),
    HttpRequest("PATCH", "/api/v1/namespaces/n/pods/p", "apply", body=b"{}"),
    HttpRequest("DELETE", "/api/v1/namespaces/n/pods/p", "delete", body=b"{}"),
]


def shorter(request: HttpRequest, timeout_s: float) -> HttpRequest:
    return HttpRequest(
        request.method, request.path, request.verb, request.query, request.headers, request.body, timeout_s
    )


@asynccontextmanager
async def serving(handler: Handler) -> AsyncGenerator[str]:
    """A web server with this one handler; yields its URL."""
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=0)  # type: ignore[arg-type]  # it only ever sees web.Request here
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@dataclass
class Raw:
    """A TCP server that speaks no HTTP by itself."""

    url: str = ""
    connections: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def listening(handler: RawHandler) -> AsyncGenerator[Raw]:
    raw = Raw()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw.connections.append(b"")
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection by RST instead of FIN."""
    opened = writer.get_extra_info("socket")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def transport_to(
    url: str, metrics: RequestMetrics | None = None, settings: ClientSettings | None = None
) -> AsyncGenerator[AiohttpTransport]:
    connection = Connection(url)
    async with AiohttpTransport(connection, metrics=metrics, settings=settings, user_agent="torchctl/1") as transport:
        yield transport


# What is sent, and what comes back.


async def test_a_request_arrives_as_it_was_built() -> None:
    seen: list[tuple[str, str, bytes, str | None, str | None]] = []

    async def handler(request: web.Request) -> web.Response:
        headers = request.headers
        seen.append(
            (request.method, request.raw_path, await request.read(), headers["User-Agent"], headers.get("X-One"))
        )
        return web.Response(status=201, body=b"answer", headers={"X-Two": "2"})

    async with serving(handler) as url, transport_to(url) as transport:
        request = HttpRequest("POST", "/a%2Fb", "create", (("q", "x y/z"),), (("X-One", "1"),), b"body")
        response = await transport.send(request)
    assert seen == [("POST", "/a%2Fb?q=x%20y%2Fz", b"body", "torchctl/1", "1")]
    assert (response.status, response.body, response.headers["x-two"]) == (201, b"answer", "2")


async def test_impersonation_is_in_every_request_with_all_groups() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response([request.headers["Impersonate-User"], request.headers.getall("Impersonate-Group")])

    async with serving(answer) as url:
        connection = Connection(url, impersonation=Impersonation(user="ann", groups=("dev", "ml")))
        async with AiohttpTransport(connection) as transport:
            answered = await transport.send(HttpRequest("GET", "/", "get"))
    assert answered.body == b'["ann", ["dev", "ml"]]'


@pytest.mark.parametrize("status", [200, 301, 404, 429, 500])
async def test_every_status_is_an_answer_and_redirects_are_not_followed(status: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "http://127.0.0.1:1/"}, body=b"b")

    async with serving(handler) as url, transport_to(url) as transport:
        response = await transport.send(GET)
    assert (response.status, response.body) == (status, b"b")


async def test_requests_are_measured_by_code_method_verb_and_host() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=503 if request.method == "POST" else 200, body=b"12345")

    registry = CollectorRegistry()
    async with serving(handler) as url, transport_to(url, Metrics(registry, process=False)) as transport:
        await transport.send(GET)
        await transport.send(WRITES[0])
    host = url.removeprefix("http://")
    for code, method in (("200", "GET"), ("503", "POST")):
        labels = {"code": code, "method": method, "host": host}
        assert registry.get_sample_value("rest_client_requests_total", labels) == 1
    labels = {"verb": "list", "host": host}
    assert registry.get_sample_value("rest_client_request_duration_seconds_count", labels) == 1
    assert registry.get_sample_value("rest_client_response_size_bytes_sum", labels) == 5
    labels = {"verb": WRITES[0].verb, "host": host}
    assert registry.get_sample_value("rest_client_request_size_bytes_sum", labels) == len(WRITES[0].body or b"")


async def test_a_request_without_an_answer_is_measured_as_an_error() -> None:
    registry = CollectorRegistry()
    async with transport_to("http://127.0.0.1:1", Metrics(registry, process=False)) as transport:
        with pytest.raises(Unavailable):
            await transport.send(GET)
    labels = {"code": "<error>", "method": "GET", "host": "127.0.0.1:1"}
    assert registry.get_sample_value("rest_client_requests_total", labels) == 1


# Faults.


async def test_a_refused_connection_means_that_nothing_was_sent() -> None:
    async with transport_to("http://127.0.0.1:1") as transport:
        with pytest.raises(Unavailable, match=r"cannot connect: 127.0.0.1:1: Connect call failed") as raised:
            await transport.send(WRITES[0])
    assert (raised.value.code, raised.value.outcome_unknown) == (0, False)


async def test_unresolved_name_means_that_nothing_was_sent() -> None:
    async with transport_to("http://api.invalid") as transport:
        with pytest.raises(Unavailable, match=r"cannot connect: api.invalid:80: \w+") as raised:
            await transport.send(WRITES[0])
    assert not raised.value.outcome_unknown


@pytest.mark.parametrize("request_", WRITES, ids=lambda request: request.verb)
async def test_reset_connection_leaves_the_outcome_unknown(
    request_: HttpRequest,
) -> None:
    """The write is not repeated."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        reset(writer)

    async with listening(handler) as raw, transport_to(raw.url) as transport:
        with pytest.raises(Unavailable) as raised:
            await transport.send(request_)
        assert raised.value.outcome_unknown
        assert len(raw.connections) == 1


@pytest.mark.parametrize("request_", WRITES, ids=lambda request: request.verb)
async def test_broken_keep_alive_connection_never_doubles_a_write(request_: HttpRequest) -> None:
    """The first request is answered, the second one breaks on the same connection: there must be no third."""
    requests_seen = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests_seen
        while await reader.readuntil(b"\r\n\r\n"):
            requests_seen += 1
            if requests_seen == 2:
                reset(writer)
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()

    async with listening(handler) as raw, transport_to(raw.url) as transport:
        await transport.send(GET)
        with pytest.raises(Unavailable) as raised:
            await transport.send(request_)
        assert raised.value.outcome_unknown
        assert (requests_seen, len(raw.connections)) == (2, 1)


async def test_an_answer_that_breaks_off_is_no_answer() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    async with listening(handler) as raw, transport_to(raw.url) as transport:
        with pytest.raises(Unavailable, match="broke"):
            await transport.send(GET)


@pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b""])
async def test_a_server_that_does_not_speak_http_is_unavailable(answer: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async with listening(handler) as raw, transport_to(raw.url) as transport:
        with pytest.raises(Unavailable):
            await transport.send(GET)


@pytest.mark.parametrize("request_", [GET, WRITES[0]], ids=["read", "write"])
async def test_a_server_that_hangs_meets_the_deadline(request_: HttpRequest) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(handler) as raw, transport_to(raw.url) as transport:
        with pytest.raises(Timeout) as raised:
            await transport.send(shorter(request_, 0.5))
    assert raised.value.outcome_unknown is request_.is_write


async def test_a_body_that_trickles_meets_the_same_deadline() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not reader.at_eof():
            writer.write(b"x")
            await reader.read(1)

    async with listening(handler) as raw, transport_to(raw.url) as transport:
        with pytest.raises(Timeout):
            await transport.send(shorter(GET, 0.1))


async def test_a_caller_s_cancellation_is_no_timeout() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(handler) as raw, transport_to(raw.url) as transport:
        with anyio.move_on_after(0.05) as scope:
            await transport.send(GET)
    assert scope.cancelled_caught


async def test_sockets_notice_a_peer_that_vanished_within_thirty_seconds() -> None:
    with sockets.open_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle_s = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        period_s = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        probes = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        unacknowledged_s = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000
    assert idle_s + period_s * probes <= 30
    assert unacknowledged_s <= 30


async def test_requests_and_watches_use_such_sockets() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    async with serving(handler) as url, transport_to(url) as transport:
        for session in (transport._requests, transport._watches):
            assert session is not None
            assert session.connector is not None
            assert session.connector._socket_factory is sockets.open_socket  # type: ignore[attr-defined]
            assert session._retry_connection is False


# The gate.


async def test_a_closed_gate_sends_nothing() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.method)
        return web.Response()

    def gate() -> None:
        raise NotLeader

    async with serving(handler) as url, transport_to(url) as transport:
        with pytest.raises(NotLeader):
            await transport.send(WRITES[0], gate)
    assert seen == []


async def test_the_setting_bounds_the_requests_under_way() -> None:
    released, full = asyncio.Event(), asyncio.Event()
    arrived: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        if "leases" in request.path:
            return web.Response()
        arrived.append(request.path)
        if len(arrived) == 2:
            full.set()
        await released.wait()
        return web.Response()

    two = ClientSettings(max_connections=2)
    async with serving(handler) as url, transport_to(url, settings=two) as transport:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(transport.send, GET)
            await full.wait()
            await transport.send(requests.get(LEASE, "torchctl", "ns"))  # it has a way of its own, and comes back
            assert len(arrived) == 2
            released.set()
        assert len(arrived) == 5


async def test_the_gate_is_asked_after_the_wait_for_a_connection() -> None:
    released = asyncio.Event()
    asked: list[bool] = []

    async def handler(request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    async with serving(handler) as url, transport_to(url) as transport, anyio.create_task_group() as tasks:
        for _ in range(ClientSettings().max_connections):
            tasks.start_soon(transport.send, GET)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(transport.send, WRITES[0], lambda: asked.append(released.is_set()))
        await anyio.wait_all_tasks_blocked()
        assert asked == []
        released.set()
    assert asked == [True]


async def test_the_lease_passes_requests_that_hold_every_connection() -> None:
    released = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        if "leases" not in request.path:
            await released.wait()
        return web.Response()

    async with serving(handler) as url, transport_to(url) as transport, anyio.create_task_group() as tasks:
        for _ in range(ClientSettings().max_connections):
            tasks.start_soon(transport.send, GET)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5):
            assert (await transport.send(requests.get(LEASE, "torchctl", "ns"))).status == 200
        released.set()


# Credentials.


class Rotating:
    """Credentials of which the server accepts only the newest."""

    certificate = None

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.forced = 0

    async def authorization(self, force: bool = False) -> str | None:
        if force:
            self.forced += 1
            self.tokens = self.tokens[1:] or self.tokens
        return f"Bearer {self.tokens[0]}"


async def guarded(request: web.Request) -> web.Response:
    return web.Response(status=200 if request.headers.get("Authorization") == "Bearer good" else 401)


@pytest.mark.parametrize("request_", [GET, *WRITES], ids=lambda request: request.verb)
async def test_a_401_is_answered_with_fresh_credentials_once(request_: HttpRequest) -> None:
    credentials = Rotating("old", "good")
    async with (
        serving(guarded) as url,
        AiohttpTransport(Connection(url, credentials=credentials)) as transport,
    ):
        assert (await transport.send(request_)).status == 200
        assert (await transport.send(request_)).status == 200
    assert credentials.forced == 1


async def test_credentials_that_stay_bad_are_offered_twice_only() -> None:
    credentials = Rotating("old", "older", "oldest")
    async with (
        serving(guarded) as url,
        AiohttpTransport(Connection(url, credentials=credentials)) as transport,
    ):
        assert (await transport.send(GET)).status == 401
    assert credentials.forced == 1


async def test_a_watch_is_opened_with_fresh_credentials_too() -> None:
    credentials = Rotating("old", "good")
    async with (
        serving(guarded) as url,
        AiohttpTransport(Connection(url, credentials=credentials)) as transport,
        transport.stream(WATCH) as stream,
    ):
        assert stream.status == 200


async def test_a_gate_that_closes_meanwhile_stops_the_second_attempt() -> None:
    passes = iter([None])

    def gate() -> None:
        if next(passes, NotLeader) is NotLeader:
            raise NotLeader

    async with (
        serving(guarded) as url,
        AiohttpTransport(Connection(url, credentials=Rotating("old", "good"))) as transport,
    ):
        with pytest.raises(NotLeader):
            await transport.send(WRITES[0], gate)


# Streams.


def lines(*chunks: bytes, hang: bool = False) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if hang:
            await anyio.sleep_forever()
        return response

    return handler


async def read(url: str) -> list[bytes]:
    async with transport_to(url) as transport, transport.stream(WATCH) as stream:
        got = []
        while line := await stream.readline(5.0):
            got.append(line)
        return got


CUTS = [
    (b"one\ntwo\n",),
    (b"one\n", b"two\n"),
    (b"o", b"n", b"e", b"\n", b"t", b"wo\n"),
    (b"one\ntw", b"o\nthr"),
]


@pytest.mark.parametrize("chunks", CUTS)
async def test_lines_come_whole_however_they_were_cut(chunks: tuple[bytes, ...]) -> None:
    async with serving(lines(*chunks)) as url:
        assert await read(url) == [b"one\n", b"two\n"]


@pytest.mark.parametrize("chunks", CUTS)
async def test_many_lines_come_whole_too(chunks: tuple[bytes, ...]) -> None:
    blocks: list[bytes] = []
    async with serving(lines(*chunks)) as url, transport_to(url) as transport, transport.stream(WATCH) as stream:
        while block := await stream.readlines(5.0):
            blocks.append(block)
    assert all(block.endswith(b"\n") for block in blocks)
    assert b"".join(blocks) == b"one\ntwo\n"


async def test_lines_that_came_together_are_read_together() -> None:
    handler = lines(b"one\ntwo\nthr", b"ee\n")
    async with serving(handler) as url, transport_to(url) as transport, transport.stream(WATCH) as stream:
        assert (await stream.readlines(5.0)).startswith(b"one\ntwo\n")


async def test_a_line_may_be_as_long_as_any_object() -> None:
    giant = b"x" * (8 * 2**20) + b"\n"
    async with serving(lines(giant, b"next\n")) as url:
        assert [len(line) for line in await read(url)] == [len(giant), 5]


async def test_broken_stream_differs_from_an_ended_one() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        await writer.drain()

    async with listening(handler) as raw, transport_to(raw.url) as transport, transport.stream(WATCH) as stream:
        assert await stream.readline(5.0) == b"one\n"
        with pytest.raises(Unavailable):
            await stream.readline(5.0)


async def test_a_silent_stream_times_out_by_the_line() -> None:
    async with (
        serving(lines(b"one\n", hang=True)) as url,
        transport_to(url) as transport,
        transport.stream(WATCH) as stream,
    ):
        assert await stream.readline(5.0) == b"one\n"
        with pytest.raises(Timeout):
            await stream.readline(0.05)


async def test_an_endless_stream_ends_when_its_reader_leaves() -> None:
    async with serving(lines(hang=True)) as url, transport_to(url) as transport, transport.stream(WATCH) as stream:
        assert stream.status == 200


async def test_a_refused_watch_has_a_body() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=410, body=b"gone")

    async with serving(handler) as url, transport_to(url) as transport, transport.stream(WATCH) as stream:
        assert (stream.status, await stream.read_body()) == (410, b"gone")


async def test_watches_do_not_use_up_the_connections_of_requests() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await lines(hang=True)(request) if "watch" in request.query else web.Response()

    async with serving(handler) as url, transport_to(url) as transport, anyio.create_task_group() as tasks:
        opened = anyio.Semaphore(0)

        async def watch() -> None:
            async with transport.stream(WATCH):
                opened.release()
                await anyio.sleep_forever()

        for _ in range(100):
            tasks.start_soon(watch)
        for _ in range(100):
            await opened.acquire()
        assert (await transport.send(GET)).status == 200
        tasks.cancel_scope.cancel()


# Proxies.


async def test_the_environment_s_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def proxy(request: web.Request) -> web.Response:
        seen.append(str(request.url))
        return web.Response(body=b"by proxy")

    async with serving(proxy) as url:
        monkeypatch.setenv("http_proxy", url)
        async with transport_to("http://api.example.com:8080") as transport:
            assert (await transport.send(GET)).body == b"by proxy"
    assert seen == ["http://api.example.com:8080/api/v1/pods?limit=1"]


async def test_the_connection_s_own_proxy_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def proxy(request: web.Request) -> web.Response:
        return web.Response(body=b"by proxy")

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with serving(proxy) as url:
        connection = Connection("http://api.example.com", proxy=url)
        async with AiohttpTransport(connection) as transport:
            assert (await transport.send(GET)).body == b"by proxy"


async def test_a_proxy_that_is_away_means_that_nothing_was_sent() -> None:
    async with AiohttpTransport(Connection("http://api.example.com", proxy="http://127.0.0.1:1")) as transport:
        with pytest.raises(Unavailable) as raised:
            await transport.send(WRITES[0])
    assert not raised.value.outcome_unknown


async def test_a_transport_that_is_cancelled_leaves_no_socket_open() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="{}")

    async with serving(answer) as url:
        with anyio.CancelScope() as scope:
            async with AiohttpTransport(Connection(url)) as transport:
                await transport.send(GET)
                scope.cancel()
                await anyio.sleep_forever()
        assert transport.is_closed


async def test_connection_that_does_not_close_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of a busy machine may be that late: the sessions after the first one were never told to close."""
    monkeypatch.setattr("torchctl.runtime.client.transport.CLOSE_TIMEOUT_S", 0.05)
    async with AiohttpTransport(Connection("http://127.0.0.1:9")) as transport:
        first, *others = transport._sessions
        close = first.close
        monkeypatch.setattr(first, "close", anyio.sleep_forever)
    assert all(session.closed for session in others)
    await close()
