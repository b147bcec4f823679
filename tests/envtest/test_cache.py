"""The cache against a real API server: lists, watches, outages, kinds that come and go, own writes."""

import random
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest
from watching import CONFIG_MAP, WIDGET, Heard, config_map, create_widget, running

from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Informer
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.writes import record_writes
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.kinds import Key, Kind, ObjectMeta
from torchctl.runtime.watch.settings import WatchSettings
from torchctl.testing.controlplane import ControlPlane


class Count(msgspec.Struct, frozen=True):
    """Reads config maps as if all their values were numbers."""

    metadata: ObjectMeta
    data: dict[str, int] = {}


COUNT = Kind("", "v1", "ConfigMap", "configmaps", Count)


def new_cache(client: Client, *, streaming_list: bool = True) -> Cache:
    return Cache(client, rng=random.Random(1), settings=WatchSettings(streaming_list=streaming_list))


@pytest.mark.parametrize("streaming_list", [True, False], ids=["streamed", "paged"])
async def test_a_list_of_several_pages_is_cached_and_followed(
    admin: Client, namespace: str, streaming_list: bool
) -> None:
    count = 1200
    await create_many(admin, namespace, count)
    cache = new_cache(admin, streaming_list=streaming_list)
    informer = cache.register(CONFIG_MAP, namespace=namespace, labels="app=cache")
    async with running(cache):
        await cache.wait_synced()
        assert len(informer.reader) == count
        informer.add_handler(heard := Heard())
        await admin.merge_patch(CONFIG_MAP, "cm-7", {"data": {"n": "changed"}}, namespace=namespace)
        await admin.delete(CONFIG_MAP, "cm-8", namespace=namespace)
        await heard.until(lambda: heard.types[-1] == ("deleted", "cm-8"))
        assert heard.types[-2] == ("updated", "cm-7")
        changed = cache.get(CONFIG_MAP, Key(namespace, "cm-7"))
        assert changed is not None
        assert changed.data == {"n": "changed"}
        assert informer.stats().lists == 1


async def test_objects_leave_and_enter_the_cache_with_the_selector(admin: Client, namespace: str) -> None:
    await admin.create(CONFIG_MAP, config_map("a", namespace))
    cache = new_cache(admin)
    cache.register(CONFIG_MAP, namespace=namespace, labels="app=cache").add_handler(heard := Heard())
    async with running(cache):
        await cache.wait_synced()
        for label in ("other", "cache"):
            await admin.merge_patch(CONFIG_MAP, "a", {"metadata": {"labels": {"app": label}}}, namespace=namespace)
        await heard.until(lambda: len(heard.types) == 3)
        assert heard.types == [("added", "a"), ("deleted", "a"), ("added", "a")]


async def test_object_that_moves_between_selectors_stays_readable(admin: Client, namespace: str) -> None:
    """Its first watch says that it is gone, as with client-go. Reads find it as soon as the second one shows it."""
    await admin.create(CONFIG_MAP, config_map("a", namespace))
    cache = new_cache(admin)
    first, second = (cache.register(CONFIG_MAP, namespace=namespace, labels=f"app={app}") for app in ("cache", "other"))
    first.add_handler(left := Heard())
    second.add_handler(entered := Heard())
    async with running(cache):
        await cache.wait_synced()
        await admin.merge_patch(CONFIG_MAP, "a", {"metadata": {"labels": {"app": "other"}}}, namespace=namespace)
        await left.until(lambda: left.types == [("added", "a"), ("deleted", "a")])
        await entered.until(lambda: entered.types == [("added", "a")])
        found = cache.get(CONFIG_MAP, Key(namespace, "a"))
        assert found is not None
        assert found.metadata.labels == {"app": "other"}


async def test_a_reconcile_reads_its_own_writes(admin: Client, namespace: str) -> None:
    cache = new_cache(admin)
    cache.register(CONFIG_MAP, namespace=namespace)
    barrier = Barrier(cache, clock=SystemClock(), timeout_s=30.0)
    key = Key(namespace, "mine")
    async with running(cache):
        await cache.wait_synced()
        for turn in range(20):
            with record_writes() as writes:
                body = config_map("mine", namespace, turn=str(turn))
                await admin.apply(CONFIG_MAP, body)
            barrier.note(key, writes)
            assert await barrier.wait(key)
            seen = cache.get(CONFIG_MAP, key)
            assert seen is not None
            assert seen.data["turn"] == str(turn)
            with record_writes() as writes:
                await admin.delete(CONFIG_MAP, "mine", namespace=namespace, uid=seen.metadata.uid)
            barrier.note(key, writes)
            assert await barrier.wait(key)
            assert cache.get(CONFIG_MAP, key) is None


async def test_an_object_that_does_not_fit_hides_no_other(admin: Client, namespace: str) -> None:
    await admin.create(CONFIG_MAP, config_map("bad", namespace, n="many"))
    cache = new_cache(admin)
    informer = cache.register(COUNT, namespace=namespace, labels="app=cache")
    informer.add_handler(heard := Heard())
    async with running(cache):
        await cache.wait_synced()
        assert [*informer.reader.undecodable] == [Key(namespace, "bad")]
        await admin.create(CONFIG_MAP, config_map("bad2", namespace, n="few"))
        await admin.create(CONFIG_MAP, config_map("neighbour", namespace))
        await heard.until(lambda: ("added", "neighbour") in heard.types)
        assert len(informer.reader.undecodable) == 2
        await admin.delete(CONFIG_MAP, "bad2", namespace=namespace)
        await admin.delete(CONFIG_MAP, "neighbour", namespace=namespace)
        await heard.until(lambda: ("deleted", "neighbour") in heard.types)
        assert [*informer.reader.undecodable] == [Key(namespace, "bad")]


async def test_a_kind_is_absent_appears_vanishes_and_returns(
    control_plane: ControlPlane, admin: Client, namespace: str
) -> None:
    cache = new_cache(admin)
    informer = cache.register(WIDGET, optional=True)
    informer.add_handler(heard := Heard())
    async with running(cache, within_s=120.0):
        await cache.wait_synced()
        assert informer.stats().available is False
        for name in ("first", "second"):
            await create_widget(control_plane, admin, namespace, name)
            await heard.until(lambda name=name: ("added", name) in heard.types)  # type: ignore[misc]  # bound now
            assert informer.stats().available
            await control_plane.kubectl("delete", "crd", "widgets.cache.test")
            await heard.until(lambda name=name: ("deleted", name) in heard.types)  # type: ignore[misc]
            await until(lambda: not informer.stats().available, informer)


async def test_an_api_server_that_restarts_is_followed_again(
    control_plane: ControlPlane, admin: Client, namespace: str
) -> None:
    cache = new_cache(admin)
    cache.register(CONFIG_MAP, namespace=namespace).add_handler(heard := Heard())
    async with running(cache, within_s=120.0):
        await cache.wait_synced()
        await control_plane.restart("kube-apiserver")
        with anyio.fail_after(8):
            await admin.create(CONFIG_MAP, config_map("after", namespace))
            await heard.until(lambda: ("added", "after") in heard.types)


async def create_many(client: Client, namespace: str, count: int) -> None:
    async def create(numbers: range) -> None:
        for n in numbers:
            await client.create(CONFIG_MAP, config_map(f"cm-{n}", namespace, n=str(n)))

    async with anyio.create_task_group() as tasks:
        for start in range(10):
            tasks.start_soon(create, range(start, count, 10))


async def until(condition: Callable[[], bool], informer: Informer[Any]) -> None:
    """Looks again at each move of the informer's clock-driven retries."""
    while not condition():
        await anyio.sleep(0.05)
        assert informer.stats().age_s < 120
