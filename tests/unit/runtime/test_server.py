"""The server answers scrapes and probes, and no client can make it hold more than its bounds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import anyio
import pytest

from torchctl.runtime.clock import SystemClock
from torchctl.runtime.health import HealthChecks
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.server import Server
from torchctl.runtime.settings import ServerSettings

HOST = "127.0.0.1"
LOCAL = ServerSettings(host=HOST, metrics_port=0, health_port=0)


@asynccontextmanager
async def serving(
    settings: ServerSettings = LOCAL, checks: HealthChecks | None = None, metrics: Metrics | None = None
) -> AsyncIterator[Server]:
    metrics = metrics or Metrics(process=False)
    server = Server(settings, metrics.registry, checks or HealthChecks(), SystemClock())
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


async def test_a_full_port_closes_what_comes_in_and_leaves_the_other_port_alone() -> None:
    settings = ServerSettings(host=HOST, metrics_port=0, health_port=0, max_connections=2)
    async with serving(settings) as server:
        held = [await asyncio.open_connection(HOST, server.metrics_port) for _ in range(2)]
        reader, writer = await asyncio.open_connection(HOST, server.metrics_port)
        with anyio.fail_after(5):
            assert await closed(reader)
        assert await get(server.health_port, "/healthz") == (200, "ok")
        for _, held_writer in [*held, (reader, writer)]:
            held_writer.close()


async def test_a_client_that_never_asks_is_cut_and_makes_room() -> None:
    settings = ServerSettings(host=HOST, metrics_port=None, health_port=0, max_connections=1, request_timeout_s=0.05)
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


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True
