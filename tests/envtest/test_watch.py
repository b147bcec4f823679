"""Watches of a real API server that break: resumed where that is enough, listed anew where it is not, never lost."""

import random
from collections.abc import AsyncIterator

import pytest
from operators import running_operator
from waiting import until
from watching import CONFIG_MAP, ConfigMap, Heard, config_map, running

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Informer
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.config import Connection
from torchctl.runtime.watch.settings import WatchSettings
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.faults import Exchange, Moment, is_watch
from torchctl.testing.proxy import FaultProxy

IDLE_S = 3.0
SHORT = (8.0, 290.0)
"""Ranges over which streams end by themselves: the shortest lives long enough for a bookmark."""


class Drawn(random.Random):
    """Draws what it is told to."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


class Watching:
    """A cache of one namespace's config maps by way of a proxy, and what its handler heard."""

    def __init__(
        self, admin: Client, client: Client, namespace: str, settings: WatchSettings, rng: random.Random | None = None
    ) -> None:
        self.admin, self.namespace = admin, namespace
        self.cache = Cache(client, rng=rng or random.Random(1), settings=settings)
        self.heard = Heard()
        self.informer: Informer[ConfigMap] = self.cache.register(CONFIG_MAP, namespace=namespace, labels="app=cache")
        self.informer.add_handler(self.heard)

    async def create(self, *names: str) -> None:
        for name in names:
            await self.admin.create(CONFIG_MAP, config_map(name, self.namespace))

    async def told(self, type_: str, name: str) -> None:
        await self.heard.until(lambda: (type_, name) in self.heard.types)


@pytest.fixture
async def client(control_plane: ControlPlane, proxy: FaultProxy) -> AsyncIterator[Client]:
    async with connect(proxy.connection(control_plane.connection())) as client:
        yield client


def streams(proxy: FaultProxy) -> list[Exchange]:
    return [exchange for exchange in proxy.exchanges if is_watch(exchange)]


async def test_a_watch_that_fell_silent_is_found_and_resumed(
    proxy: FaultProxy, client: Client, admin: Client, namespace: str
) -> None:
    """The connection lives and its bookmarks and events are lost: only the idle deadline can tell.

    The server sends a bookmark shortly before it ends a stream. So the first stream is a short one, and has one.
    """
    drawn = Drawn(0.0)
    watching = Watching(admin, client, namespace, WatchSettings(idle_deadline_s=IDLE_S, server_timeout_s=SHORT), drawn)
    async with running(watching.cache):
        await watching.cache.wait_synced()
        first = await until_watching(proxy)
        drawn.value = 1.0
        await watching.create("a")
        await watching.told("added", "a")
        second = await until_watching(proxy, after=first)
        lost = proxy.drop_lines(lambda line: True, match=lambda exchange: exchange is second)
        await watching.create("b")
        await watching.told("added", "b")
        assert lost.count >= 1
        assert watching.informer.stats().lists == 1


async def test_a_connection_that_is_cut_is_resumed_without_a_list(
    proxy: FaultProxy, client: Client, admin: Client, namespace: str
) -> None:
    watching = Watching(admin, client, namespace, WatchSettings())
    async with running(watching.cache):
        await watching.cache.wait_synced()
        for name in ("a", "b", "c"):
            proxy.down()
            await watching.create(name)
            proxy.heal()
            await watching.told("added", name)
        assert watching.informer.stats().lists == 1
        assert [name for _, name in watching.heard.types] == ["a", "b", "c"]


@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed", "paged"])
async def test_expired_version_is_listed_anew_with_missed_deletions(
    proxy: FaultProxy, client: Client, admin: Client, namespace: str, streaming_list: bool
) -> None:
    watching = Watching(admin, client, namespace, WatchSettings(streaming_list=streaming_list))
    await watching.create("a", "b")
    async with running(watching.cache):
        await watching.cache.wait_synced()
        first = await until_watching(proxy)
        proxy.drop_lines(lambda line: True, match=lambda exchange: exchange is first)
        expired = proxy.answer(410, reason="Expired", match=is_resumed)
        await admin.delete(CONFIG_MAP, "a", namespace=namespace)
        proxy.sever()
        await watching.told("deleted", "a")
        assert expired.count == 1
        assert watching.informer.stats().lists == 2
        assert watching.heard.types.count(("added", "b")) == 1


async def until_watching(proxy: FaultProxy, *, after: Exchange | None = None) -> Exchange:
    """The first stream that is open, or the next one. A server without streaming lists has refused one before it."""

    def opened() -> list[Exchange]:
        earlier = after.number if after is not None else -1
        return [exchange for exchange in streams(proxy) if exchange.status == 200 and exchange.number > earlier]

    async def is_open() -> bool:
        return bool(opened())

    await until(is_open)
    return opened()[0]


def is_resumed(exchange: Exchange) -> bool:
    """Whether it is a watch from a version, and not a streaming list."""
    return is_watch(exchange) and "sendInitialEvents" not in exchange.query


async def test_new_api_server_that_lacks_the_version_is_listed_anew(
    control_plane: ControlPlane, proxy: FaultProxy, client: Client, admin: Client, namespace: str
) -> None:
    """A new API server's watch cache begins at its own start: what is older is too old."""
    watching = Watching(admin, client, namespace, WatchSettings())
    await watching.create("a", "b")
    async with running(watching.cache, within_s=120.0):
        await watching.cache.wait_synced()
        proxy.down()
        await admin.delete(CONFIG_MAP, "a", namespace=namespace)
        await control_plane.restart("kube-apiserver")
        proxy.heal()
        await watching.told("deleted", "a")
        await watching.create("c")
        await watching.told("added", "c")
        assert watching.heard.types.count(("added", "b")) == 1


async def test_list_cut_between_pages_is_never_shown_in_part(
    proxy: FaultProxy, client: Client, admin: Client, namespace: str
) -> None:
    settings = WatchSettings(streaming_list=False, page_size=10)
    watching = Watching(admin, client, namespace, settings)
    await watching.create(*(f"cm-{number}" for number in range(25)))
    cut = proxy.cut(2, Moment.AFTER, match=lambda exchange: exchange.query.get("limit") == "10")
    async with running(watching.cache):

        async def is_cut() -> bool:
            return cut.exchange is not None

        await until(is_cut)
        assert not watching.informer.synced
        assert watching.heard.types == []
        proxy.heal()
        await watching.cache.wait_synced()
        assert len(watching.informer.reader) == 25
        assert len(watching.heard.types) == 25


@pytest.mark.kubernetes("1.34", "it has no streaming lists, or has them switched off")
async def test_streaming_list_that_is_cut_adds_each_object_once(
    proxy: FaultProxy, client: Client, admin: Client, namespace: str
) -> None:
    watching = Watching(admin, client, namespace, WatchSettings())
    await watching.create(*(f"cm-{number}" for number in range(25)))
    seen = 0

    def cut_once(line: bytes) -> bool:
        nonlocal seen
        seen += 1
        if seen == 12:
            proxy.sever()
        return seen == 12

    proxy.drop_lines(cut_once)
    async with running(watching.cache):
        await watching.cache.wait_synced()
        assert seen > 25
        assert sorted(watching.heard.types) == sorted(("added", f"cm-{number}") for number in range(25))


@pytest.mark.usefixtures("kubelet")
async def test_an_operator_works_on_after_the_api_server_restarted(
    control_plane: ControlPlane, admin: Client, namespace: str, operator_account: Connection
) -> None:
    meta = {"namespace": namespace}
    group = "torchrun.ai/v1alpha1"
    queue = {"apiVersion": group, "kind": "TorchrunQueue", "metadata": {**meta, "name": "q"}, "spec": {"image": "i:1"}}
    spec = {"jobQueue": "q", "numNodes": 1, "command": "true"}

    async def phase() -> bool:
        return (await admin.get(TORCHRUN_JOB, "job", namespace)).status.phase == Phase.SUCCEEDED

    async with running_operator(operator_account, namespace):
        await admin.create(TORCHRUN_QUEUE, queue)
        await control_plane.restart("kube-apiserver")
        job = {"apiVersion": group, "kind": "TorchrunJob", "metadata": {**meta, "name": "job"}, "spec": spec}
        await admin.create(TORCHRUN_JOB, job)
        await until(phase, timeout_s=60)
