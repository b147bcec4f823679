"""The server answers scrapes and probes, and no client can make it hold more than its bounds."""

import asyncio
import gc
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from waiting import until

from torchctl.runtime.certificates import CHECK_PERIOD_S
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.health import HealthChecks
from torchctl.runtime.memory import settle
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.server import Server
from torchctl.runtime.settings import ServerSettings
from torchctl.testing.certificates import Authority
from torchctl.testing.clock import ManualClock

HOST = "127.0.0.1"
LOCAL = ServerSettings(host=HOST, metrics_port=0, health_port=0)


@asynccontextmanager
async def serving(
    settings: ServerSettings = LOCAL,
    checks: HealthChecks | None = None,
    metrics: Metrics | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Server]:
    metrics = metrics or Metrics(process=False)
    server = Server(settings, metrics.registry, checks or HealthChecks(), clock or SystemClock())
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        yield server
        group.cancel_scope.cancel()


async def get(port: int | None, path: str, method: str = "GET") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{HOST}:{port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_metrics_of_its_own_registry_are_served() -> None:
    metrics = Metrics(process=False)
    metrics.for_controller("torchrunjob")
    async with serving(metrics=metrics) as server:
        status, text = await get(server.metrics_port, "/metrics")
    assert status == 200
    assert 'controller_runtime_active_workers{controller="torchrunjob"} 0.0' in text


async def test_health_is_brief_when_well_and_verbose_on_request() -> None:
    checks = HealthChecks()
    checks.add_live("loop", lambda: "")
    async with serving(checks=checks) as server:
        assert await get(server.health_port, "/healthz") == (200, "ok")
        assert await get(server.health_port, "/healthz?verbose") == (200, "[+]loop ok\nhealthz check passed\n")


async def test_a_failed_check_is_a_500_that_says_why() -> None:
    checks = HealthChecks()
    checks.add_ready("cache", lambda: "pods not synced")
    async with serving(checks=checks) as server:
        assert await get(server.health_port, "/readyz") == (
            500,
            "[-]cache failed: pods not synced\nreadyz check failed\n",
        )
        assert await get(server.health_port, "/healthz") == (200, "ok")


async def test_other_paths_and_methods_are_refused() -> None:
    async with serving() as server:
        assert (await get(server.health_port, "/metrics"))[0] == 404
        assert (await get(server.metrics_port, "/healthz"))[0] == 404
        assert (await get(server.metrics_port, "/metrics", "POST"))[0] == 405


async def test_a_port_of_none_is_not_served() -> None:
    async with serving(ServerSettings(host=HOST, metrics_port=None, health_port=0)) as server:
        assert server.metrics_port is None
        assert await get(server.health_port, "/healthz") == (200, "ok")


async def test_a_taken_port_is_an_error_at_the_start() -> None:
    async with serving() as first:
        taken = ServerSettings(host=HOST, metrics_port=first.metrics_port, health_port=None)
        with pytest.raises(OSError, match="in use"):
            await Server(taken, Metrics(process=False).registry, HealthChecks(), SystemClock()).run()


async def test_idle_connections_keep_no_probe_out() -> None:
    """Whoever reaches the port could else have the kubelet restart the operator, again and again."""
    settings = ServerSettings(host=HOST, metrics_port=0, health_port=0, max_connections=2)
    async with serving(settings) as server:
        for port, path in ((server.health_port, "/healthz"), (server.metrics_port, "/metrics")):
            held = [await asyncio.open_connection(HOST, port) for _ in range(3)]
            with anyio.fail_after(5):
                assert await closed(held[0][0])
            assert (await get(port, path))[0] == 200
            for _, writer in held:
                writer.close()


async def test_a_client_that_never_asks_is_cut_and_makes_room() -> None:
    settings = ServerSettings(host=HOST, metrics_port=None, health_port=0, max_connections=1, request_timeout_s=0.5)
    async with serving(settings) as server:
        reader, writer = await asyncio.open_connection(HOST, server.health_port)
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        with anyio.fail_after(5):
            assert await closed(reader)
        writer.close()
        assert await get(server.health_port, "/healthz") == (200, "ok")


async def test_a_connection_carries_one_request() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection(HOST, server.health_port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        with anyio.fail_after(5):
            answer = await reader.read()
        assert b"Connection: close" in answer
        writer.close()


async def test_stopping_does_not_wait_for_idle_clients() -> None:
    async with serving() as server:
        _, writer = await asyncio.open_connection(HOST, server.health_port)
        stopping = anyio.current_time()
    assert anyio.current_time() - stopping < 5
    writer.close()


def write(directory: Path, authority: Authority) -> None:
    pair = authority.server([HOST])
    (directory / "tls.crt").write_bytes(pair.certificate)
    (directory / "tls.key").write_bytes(pair.key)


async def trusted(port: int | None, authority: Authority) -> bool:
    """Whether a client who trusts this authority alone gets the metrics."""
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"https://{HOST}:{port}/metrics", ssl=context) as response:
                return response.status == 200 and "python_info" not in await response.text()
        except aiohttp.ClientConnectorCertificateError:
            return False


async def test_a_certificate_that_is_replaced_is_shown_without_a_restart(tmp_path: Path) -> None:
    first, second, clock = Authority("first"), Authority("second"), ManualClock()
    write(tmp_path, first)
    settings = ServerSettings(host=HOST, metrics_port=0, health_port=0, metrics_cert_dir=str(tmp_path))
    async with serving(settings, clock=clock) as server:
        assert await trusted(server.metrics_port, first)
        assert not await trusted(server.metrics_port, second)
        assert await get(server.health_port, "/healthz") == (200, "ok")
        write(tmp_path, second)
        clock.seconds += CHECK_PERIOD_S
        assert await trusted(server.metrics_port, second)
        assert not await trusted(server.metrics_port, first)


@asynccontextmanager
async def encrypted(
    directory: Path, *, limit: int = 2, timeout_s: float = 10.0
) -> AsyncIterator[tuple[int, Authority]]:
    """A server with room for few, and whom to trust."""
    authority = Authority()
    write(directory, authority)
    settings = ServerSettings(
        host=HOST,
        metrics_port=0,
        health_port=None,
        metrics_cert_dir=str(directory),
        max_connections=limit,
        request_timeout_s=timeout_s,
    )
    async with serving(settings) as server:
        assert server.metrics_port
        yield server.metrics_port, authority


async def test_who_never_shakes_hands_counts_and_is_cut(tmp_path: Path) -> None:
    async with encrypted(tmp_path, limit=1, timeout_s=1.0) as (port, authority):
        reader, writer = await asyncio.open_connection(HOST, port)
        late, late_writer = await asyncio.open_connection(HOST, port)
        with anyio.fail_after(5):
            assert await closed(reader)
            assert await closed(late)
        assert await trusted(port, authority)
        _, idle = await asyncio.open_connection(HOST, port)
        assert await trusted(port, authority)
        for each in (writer, late_writer, idle):
            each.close()


async def test_failed_handshake_ends_only_its_own_connection(tmp_path: Path) -> None:
    async with encrypted(tmp_path) as (port, authority):
        for noise in (b"GET /metrics HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x00" * 100):
            for _ in range(5):
                reader, writer = await asyncio.open_connection(HOST, port)
                writer.write(noise)
                with anyio.fail_after(5):
                    await closed(reader)
                writer.close()
        for _ in range(5):  # and who leaves at once
            _, writer = await asyncio.open_connection(HOST, port)
            writer.transport.abort()
        assert await trusted(port, authority)


async def test_connections_that_end_make_room_under_tls_too(tmp_path: Path) -> None:
    async with encrypted(tmp_path) as (port, authority):
        for _ in range(10):
            assert await trusted(port, authority)


async def test_connection_cut_before_its_handshake_leaves_nothing_behind(tmp_path: Path) -> None:
    """A handshake on a dead connection would hold its 256 KiB until it times out, a minute later."""
    settle()  # what other tests have left does not count, and need not be looked through each time
    async with encrypted(tmp_path, limit=2) as (port, authority):
        crowd = [socket.create_connection((HOST, port)) for _ in range(10)]  # all accepted in one turn of the loop
        assert await trusted(port, authority)
        for each in crowd:
            each.close()

        async def is_forgotten() -> bool:
            return handshakes() == 0

        await until(is_forgotten)


async def test_stopping_does_not_wait_for_a_handshake(tmp_path: Path) -> None:
    async with encrypted(tmp_path) as (port, _):
        reader, writer = await asyncio.open_connection(HOST, port)
        stopping = anyio.current_time()
    with anyio.fail_after(5):
        assert await closed(reader)
    assert anyio.current_time() - stopping < 5
    writer.close()


def test_readers_are_not_forgotten_where_the_settings_ask_for_them() -> None:
    with pytest.raises(ValueError, match="readers"):
        Server(ServerSettings(metrics_auth=True), Metrics(process=False).registry, HealthChecks(), SystemClock())


def handshakes() -> int:
    """TLS connections in memory since it has settled, dead ones too."""
    gc.collect()
    return sum(isinstance(each, SSLProtocol) for each in gc.get_objects())


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True
