import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from shelves import Shelf

from torchctl.runtime.cache.cache import Cache, NotRegistered, NotSynced
from torchctl.runtime.cache.informer import Informer
from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import EVENT, LEASE, Key, Lease, ObjectMeta
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.watch.events import Applied, Init, InitDone
from torchctl.runtime.watch.settings import WatchSettings
from torchctl.testing.clock import ManualClock

A = Key("ns", "a")


def lease(name: str, version: int, *, labels: dict[str, str] | None = None) -> Lease:
    meta = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", resource_version=str(version), labels=labels or {})
    return Lease(meta)


def cache_over(transport: Shelf, metrics: Metrics | None = None) -> Cache:
    clock, rng = ManualClock(), random.Random(1)
    client = Client(transport, clock=clock, rng=rng)
    return Cache(client, metrics=metrics, clock=clock, rng=rng, settings=WatchSettings(streaming_list=False))


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def cache(shelf: Shelf) -> Cache:
    return cache_over(shelf)


@asynccontextmanager
async def running(cache: Cache) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(cache.run)
        with anyio.fail_after(10):
            yield
        tasks.cancel_scope.cancel()


async def fill(cache: Cache, *objects: Lease) -> None:
    await feed(cache.informer(LEASE), *objects)


async def feed(informer: Informer[Lease], *objects: Lease) -> None:
    """Completes a list of these objects."""
    await informer.feed(Init())
    for obj in objects:
        await informer.feed(Applied(obj))
    await informer.feed(InitDone("10"))


class TestRegistering:
    def test_the_same_kind_and_selector_share_an_informer(self, cache: Cache) -> None:
        assert cache.register(LEASE) is cache.register(LEASE)
        assert cache.register(LEASE, labels="app=x") is not cache.register(LEASE)

    def test_a_kind_that_anybody_requires_is_not_optional(self, cache: Cache) -> None:
        assert cache.register(LEASE, optional=True).optional
        assert not cache.register(LEASE).optional
        assert not cache.register(LEASE, optional=True).optional

    def test_reading_what_nobody_registered_is_an_error(self, cache: Cache) -> None:
        for read in (
            lambda: cache.get(LEASE, A),
            lambda: cache.list(LEASE),
            lambda: cache.by_index(LEASE, "x", "y"),
            lambda: cache.informer(LEASE),
        ):
            with pytest.raises(NotRegistered, match=r"leases\.coordination\.k8s\.io"):
                read()

    def test_reading_an_index_that_nobody_registered_is_an_error(self, cache: Cache) -> None:
        cache.register(LEASE)
        with pytest.raises(NotRegistered, match="index nope"):
            cache.by_index(LEASE, "nope", "x")


class TestReading:
    async def test_finds_what_the_informer_holds(self, cache: Cache) -> None:
        cache.register(LEASE, indexes={"name": lambda obj: [obj.metadata.name]})
        await fill(cache, lease("a", 3), lease("b", 4))
        assert cache.get(LEASE, A) == lease("a", 3)
        assert len(cache.list(LEASE)) == len(cache.list(LEASE, "ns")) == 2
        assert cache.list(LEASE, "other") == ()
        assert cache.by_index(LEASE, "name", "b") == (lease("b", 4),)

    async def test_finds_what_any_selector_holds_once(self, cache: Cache) -> None:
        cache.register(LEASE, labels="app=x")
        await fill(cache, lease("a", 3))
        wide = cache.register(LEASE)
        await feed(wide, lease("a", 3), lease("b", 4))
        assert [obj.metadata.name for obj in cache.list(LEASE)] == ["a", "b"]
        assert cache.get(LEASE, Key("ns", "b")) is not None

    async def test_finds_the_newest_form_where_selectors_overlap(self, cache: Cache) -> None:
        cache.register(LEASE, labels="app=x")
        await fill(cache, lease("a", 3))
        wide = cache.register(LEASE)
        await feed(wide, lease("a", 5))
        assert cache.get(LEASE, A) == lease("a", 5)
        assert cache.list(LEASE) == (lease("a", 5),)


async def test_index_of_a_kind_opens_no_watch_of_its_own(cache: Cache) -> None:
    """Registering the index with the kind again would, if the kind is watched with a selector."""
    for selector in ("app=a", "app=b"):
        informer = cache.register(LEASE, labels=selector)
        cache.index(LEASE, "app", lambda obj: [obj.metadata.labels["app"]])
        await feed(informer, lease(selector[-1], 3, labels={"app": selector[-1]}))
    assert [str(informer.selector) for informer in cache.all()] == ["labels=app=a", "labels=app=b"]
    assert [[obj.metadata.name for obj in cache.by_index(LEASE, "app", value)] for value in "abc"] == [["a"], ["b"], []]


async def test_index_covers_all_selectors_of_its_kind(cache: Cache) -> None:
    """Also if it came with one registration: a read by an index has to find what a read by key finds."""
    wide = cache.register(LEASE)
    await feed(wide, lease("a", 3))
    narrow = cache.register(LEASE, labels="app=x", indexes={"name": lambda obj: [obj.metadata.name]})
    await feed(narrow, lease("b", 4))
    assert cache.by_index(LEASE, "name", "a") == (lease("a", 3),)
    assert cache.by_index(LEASE, "name", "b") == (lease("b", 4),)


class TestRunning:
    async def test_it_syncs_every_kind(self, cache: Cache) -> None:
        cache.register(LEASE)
        cache.register(EVENT)
        async with running(cache):
            await cache.wait_synced()
            assert cache.synced
            assert cache.informer(LEASE).resource_version == 10

    async def test_a_kind_registered_while_it_runs_is_started(self, cache: Cache) -> None:
        async with running(cache):
            await cache.register(LEASE).wait_synced()

    async def test_sync_does_not_wait_for_an_unserved_optional_kind(self) -> None:
        cache = cache_over(Shelf("leases"))
        cache.register(LEASE, optional=True)
        async with running(cache):
            await cache.wait_synced()
            assert not cache.informer(LEASE).available

    async def test_a_required_kind_that_does_not_sync_is_named(self) -> None:
        cache = cache_over(Shelf("leases"))
        cache.register(LEASE)
        cache.register(EVENT)
        async with running(cache):
            await cache.informer(EVENT).wait_synced()
            await cache.informer(LEASE).wait_settled()
            with pytest.raises(NotSynced, match=r"^leases\.coordination\.k8s\.io: .*404 page not found$"):
                await cache.wait_synced(timeout_s=0)

    async def test_a_kind_that_appears_later_heals(self) -> None:
        cache = cache_over(shelf := Shelf("leases"))
        lost = cache.register(LEASE, optional=True)
        async with running(cache):
            await lost.wait_settled()
            shelf.missing.clear()
            await lost.wait_synced()
            assert lost.available
