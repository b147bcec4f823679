"""S22 of docs/design/tenancy.md: who reads the metrics, by the word of the real API server, with real tokens."""

import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import anyio
import pytest
from clusters import OPERATOR_NAMESPACE
from operators import operator_process
from waiting import until

from torchctl.runtime.access.core import ALLOWED_S, STRANGERS_AT_ONCE, STRANGERS_PER_S
from torchctl.runtime.access.readers import Readers
from torchctl.runtime.client.client import connect
from torchctl.runtime.client.config import Connection
from torchctl.runtime.health import HealthChecks
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.server import METRICS, Server
from torchctl.runtime.settings import ServerSettings
from torchctl.testing.clock import ManualClock
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.ports import reserve
from torchctl.testing.proxy import FaultProxy

HOST = "127.0.0.1"
READER = "torchctl-metrics-reader"


async def scrape(port: int | None, token: str | None = None) -> tuple[int, str]:
    """The status and the text of /metrics, from a self-signed server."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://{HOST}:{port}{METRICS}", headers=headers, ssl=anybody) as response,
    ):
        return response.status, await response.text()


@dataclass(frozen=True)
class Target:
    """Metrics for readers, and what the API server is asked about them."""

    port: int | None
    clock: ManualClock
    proxy: FaultProxy

    async def get(self, token: str | None = None) -> int:
        return (await scrape(self.port, token))[0]

    async def becomes(self, status: int, token: str) -> None:
        """Waits until that is the answer; each look is a new review."""

        async def look() -> bool:
            self.clock.seconds += ALLOWED_S
            return await self.get(token) == status

        await until(look)

    def reviews(self) -> int:
        return sum(exchange.path.endswith("reviews") for exchange in self.proxy.exchanges)


async def serve(stack: AsyncExitStack, proxy: FaultProxy, account: Connection) -> Target:
    """The server of an operator with the rights of `account`."""
    clock = ManualClock()
    client = await stack.enter_async_context(connect(proxy.connection(account)))
    settings = ServerSettings(host=HOST, metrics_port=0, health_port=None, metrics_auth=True)
    registry = Metrics(process=False).registry
    server = Server(settings, registry, HealthChecks(), clock, Readers(client, clock, METRICS))
    tasks = await stack.enter_async_context(anyio.create_task_group())
    stack.callback(tasks.cancel_scope.cancel)
    await tasks.start(server.run)
    return Target(server.metrics_port, clock, proxy)


async def account(cluster: ControlPlane, namespace: str, name: str) -> str:
    """A token of a new account without any right."""
    await cluster.kubectl("create", "serviceaccount", name, "--namespace", namespace)
    return await cluster.service_account_token(namespace, name)


async def reader(cluster: ControlPlane, namespace: str, name: str) -> str:
    """A token of a new account that has the ClusterRole for it."""
    token = await account(cluster, namespace, name)
    who = f"--serviceaccount={namespace}:{name}"
    await cluster.kubectl("create", "clusterrolebinding", f"{namespace}-{name}", f"--clusterrole={READER}", who)
    return token


async def test_s22_metrics_are_for_who_may_get_them(
    control_plane: ControlPlane, namespace: str, proxy: FaultProxy, operator_account: Connection
) -> None:
    """Nobody, somebody who made a token up, somebody without the right, and a reader."""
    other, mine = await account(control_plane, namespace, "other"), await reader(control_plane, namespace, "mine")
    async with AsyncExitStack() as stack:
        target = await serve(stack, proxy, operator_account)
        assert await target.get() == 401
        assert await target.get("made-up") == 401
        assert await target.get(f"{mine}x") == 401
        assert await target.get(other) == 403
        await target.becomes(200, mine)
        before = target.reviews()
        status, text = await scrape(target.port, mine)
        assert (status, "rest_client_requests_total" in text) == (200, True)
        assert target.reviews() == before, "within the minute nobody is asked again"
        assert await target.get(other) == 403


async def test_s22_reader_without_the_right_is_out_within_a_minute(
    control_plane: ControlPlane, namespace: str, proxy: FaultProxy, operator_account: Connection
) -> None:
    """A reader whose account was deleted is out, too."""
    first, second = await reader(control_plane, namespace, "first"), await reader(control_plane, namespace, "second")
    async with AsyncExitStack() as stack:
        target = await serve(stack, proxy, operator_account)
        for token in (first, second):
            await target.becomes(200, token)
            assert await target.get(token) == 200
        await control_plane.kubectl("delete", "serviceaccount", "first", "--namespace", namespace)
        await control_plane.kubectl("delete", "clusterrolebinding", f"{namespace}-second")
        await target.becomes(401, first)
        await target.becomes(403, second)


async def test_s22_nobody_gets_in_while_the_api_server_is_away(
    control_plane: ControlPlane, namespace: str, proxy: FaultProxy, operator_account: Connection
) -> None:
    token = await reader(control_plane, namespace, "reader")
    async with AsyncExitStack() as stack:
        target = await serve(stack, proxy, operator_account)
        await target.becomes(200, token)
        await control_plane.stop("kube-apiserver")
        try:
            assert await target.get(token) == 200, "what was said a moment ago still counts"
            target.clock.seconds += ALLOWED_S
            assert await target.get(token) == 503
            assert await target.get("made-up") == 503
            assert (await scrape(target.port, token))[1] == "the API server does not say who may read\n"
            assert await target.get() == 401
        finally:
            await control_plane.start("kube-apiserver")
        await target.becomes(200, token)


async def test_s22_operator_without_the_right_to_review_admits_nobody(
    control_plane: ControlPlane, namespace: str, proxy: FaultProxy
) -> None:
    token = await reader(control_plane, namespace, "reader")
    await control_plane.kubectl("create", "serviceaccount", "powerless", "--namespace", namespace)
    powerless = await control_plane.service_account_connection(namespace, "powerless")
    async with AsyncExitStack() as stack:
        target = await serve(stack, proxy, powerless)
        assert await target.get(token) == 503


async def test_s22_flood_of_wrong_tokens_causes_few_reviews(
    control_plane: ControlPlane, namespace: str, proxy: FaultProxy, operator_account: Connection
) -> None:
    """Each token is another one. The clock stands still, so all of it is one second."""
    token = await reader(control_plane, namespace, "reader")
    async with AsyncExitStack() as stack:
        target = await serve(stack, proxy, operator_account)
        await target.becomes(200, token)
        target.clock.seconds += ALLOWED_S
        before, statuses = target.reviews(), []

        async def knock(number: int) -> None:
            statuses.append(await target.get(f"wrong-{number}"))

        for wave in range(10):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(knock, 20 * wave + number)
        assert set(statuses) == {401, 429}
        assert STRANGERS_AT_ONCE <= statuses.count(401) <= STRANGERS_PER_S
        assert target.reviews() - before == statuses.count(401)
        assert await target.get(token) == 200, "a reader is not shut out"


async def test_s22_deployed_operator_serves_metrics_only_over_tls(
    control_plane: ControlPlane, namespace: str, operator_account: Connection, tmp_path: Path
) -> None:
    token = await reader(control_plane, namespace, "reader")
    kubeconfig = await control_plane.service_account_kubeconfig(OPERATOR_NAMESPACE, "torchctl")
    with reserve(1) as ports:
        pass
    flags = ("--metrics-auth", f"--metrics-cert-dir={tmp_path / 'none'}", f"--metrics-port={ports[0]}")
    quiet = ("--no-leader-elect", f"--namespace={namespace}")

    async def may_read() -> bool:
        try:
            return (await scrape(ports[0], token))[0] == 200
        except aiohttp.ClientConnectorError:
            return False

    async with operator_process(kubeconfig, tmp_path / "log", *flags, *quiet):
        await until(may_read)
        assert (await scrape(ports[0]))[0] == 401
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://{HOST}:{ports[0]}{METRICS}")
    assert token not in (tmp_path / "log").read_text()
