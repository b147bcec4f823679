from dataclasses import replace
from typing import Any

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Informer
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.client.writes import Deleted, Written
from torchctl.runtime.kinds import EVENT, LEASE, Key, Kind, Lease, ObjectMeta
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.watch.events import Absent, Applied, Init, InitDone, Removed, Unavailable
from torchctl.testing.clock import ManualClock

A = Key("ns", "a")


def lease(name: str, version: int) -> Lease:
    return Lease(ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", resource_version=str(version)))


@pytest.fixture
def cache() -> Cache:
    """A cache that does not run: the tests feed its informers."""
    return Cache(Client(AiohttpTransport(Connection("http://127.0.0.1:1"))))


async def fill(cache: Cache, *objects: Lease) -> None:
    informer = cache.informer(LEASE)
    await informer.feed(Init())
    for obj in objects:
        await informer.feed(Applied(obj))
    await informer.feed(InitDone("10"))


async def test_a_write_holds_until_the_cache_has_seen_it(cache: Cache) -> None:
    cache.register(LEASE)
    await fill(cache)
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=5.0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "12")])
    seen: list[bool] = []

    async def reconcile() -> None:
        seen.append(await barrier.wait("job"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reconcile)
        await checkpoint()
        await cache.informer(LEASE).feed(Applied(lease("b", 11)))
        await checkpoint()
        assert seen == []
        await cache.informer(LEASE).feed(Applied(lease("a", 12)))
    assert seen == [True]


async def test_a_delete_holds_until_the_cache_has_seen_it(cache: Cache) -> None:
    cache.register(LEASE)
    await fill(cache, lease("a", 3))
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=5.0)
    barrier.note("job", [Deleted(LEASE, A, "uid-a")])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(barrier.wait, "job")
        await checkpoint()
        await cache.informer(LEASE).feed(Removed(lease("a", 12)))
    assert repr(barrier) == "<Barrier keys=0>"


async def test_barrier_waits_only_for_objects_that_the_cache_lacks(cache: Cache) -> None:
    """The barrier ignores what the cache has seen, or will never hold."""
    cache.register(LEASE, namespace="ns")
    await fill(cache)
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=5.0)
    barrier.note(
        "job",
        [
            Written(LEASE, A, "uid-a", "10"),
            Written(EVENT, A, "uid-e", "99"),
            Written(LEASE, Key("elsewhere", "a"), "uid-a", "99"),
            Written(LEASE, A, "uid-a", "opaque"),
            Deleted(LEASE, A, "uid-a"),
        ],
    )
    assert repr(barrier) == "<Barrier keys=0>"
    assert await barrier.wait("job")


async def test_a_resource_that_is_not_served_is_not_waited_for(cache: Cache) -> None:
    cache.register(LEASE)
    await cache.informer(LEASE).feed(Unavailable("gone"))
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=5.0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99")])
    assert await barrier.wait("job")


async def test_write_is_awaited_while_the_watch_is_refused(cache: Cache) -> None:
    """A cache that was complete once hears of the write when somebody ends the refusal."""
    cache.register(LEASE)
    await fill(cache)
    await cache.informer(LEASE).feed(Unavailable("forbidden"))
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99")])
    assert not await barrier.wait("job")


async def test_optional_kind_that_is_gone_is_not_waited_for(cache: Cache) -> None:
    cache.register(LEASE, optional=True)
    await fill(cache)
    await cache.informer(LEASE).feed(Unavailable("gone", missing=True))
    await cache.informer(LEASE).feed(Absent())
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99")])
    assert await barrier.wait("job")


async def test_barrier_gives_up_on_a_late_cache(cache: Cache) -> None:
    metrics = Metrics(process=False)
    cache.register(LEASE)
    await fill(cache)
    barrier = Barrier(cache, clock=ManualClock(), metrics=metrics.for_controller("c"), timeout_s=0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99")])
    assert not await barrier.wait("job")
    assert metrics.registry.get_sample_value("torchctl_barrier_timeouts_total", {"controller": "c"}) == 1
    assert metrics.registry.get_sample_value("torchctl_barrier_wait_seconds_count", {"controller": "c"}) == 1
    assert await barrier.wait("job"), "given up once, not for every reconcile"


async def test_keys_do_not_wait_for_each_other(cache: Cache) -> None:
    cache.register(LEASE)
    await fill(cache)
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=5.0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99")])
    assert await barrier.wait("other job")


class Projection(msgspec.Struct, frozen=True):
    """A Lease of which another reader keeps only the metadata."""

    metadata: ObjectMeta


PROJECTION = replace(LEASE, type=Projection)  # type: ignore[arg-type]  # another type


async def synced(cache: Cache, kind: Kind[Any], **selector: str) -> Informer[Any]:
    informer = cache.register(kind, **selector)  # type: ignore[arg-type]  # strings only
    await informer.feed(Init())
    await informer.feed(InitDone("10"))
    return informer


@pytest.mark.parametrize(
    "labels", ["app=theirs", "!app", "app!=ours", "app notin (ours,others)", "other", "app in (x)"]
)
async def test_informer_that_never_shows_the_write_is_not_awaited(cache: Cache, labels: str) -> None:
    await synced(cache, LEASE, labels=labels)
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99", {"app": "ours"})])
    assert repr(barrier) == "<Barrier keys=0>"


@pytest.mark.parametrize(
    "labels", ["app", "app=ours", "app==ours,!other", "app in (x, ours),app notin (y)", "other!=x"]
)
async def test_informer_whose_selector_matches_is_awaited(cache: Cache, labels: str) -> None:
    await synced(cache, LEASE, labels=labels)
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99", {"app": "ours"})])
    assert not await barrier.wait("job")


async def test_write_that_leaves_the_selector_is_awaited(cache: Cache) -> None:
    informer = await synced(cache, LEASE, labels="app=ours")
    await informer.feed(Applied(lease("a", 11)))
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99", {"app": "theirs"})])
    assert not await barrier.wait("job")


@pytest.mark.parametrize(
    ("fields", "seen"), [("metadata.name=a", False), ("metadata.name=b", True), ("spec.x=y", True)]
)
async def test_barrier_knows_names_of_field_selectors(cache: Cache, fields: str, seen: bool) -> None:
    """Other fields are not known here, so a new object is not waited for."""
    await synced(cache, LEASE, fields=fields)
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99")])
    assert await barrier.wait("job") is seen


async def test_write_by_another_projection_is_awaited(cache: Cache) -> None:
    await synced(cache, PROJECTION)
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=0)
    barrier.note("job", [Written(LEASE, A, "uid-a", "99")])
    assert not await barrier.wait("job")


async def test_keys_that_never_come_back_are_forgotten(cache: Cache) -> None:
    """Their writes are seen by the cache although nobody waits for it."""
    informer = await synced(cache, LEASE)
    barrier = Barrier(cache, clock=ManualClock(), timeout_s=0)
    for version in range(11, 2011):
        barrier.note(f"job-{version}", [Written(LEASE, A, "uid-a", str(version))])
        await informer.feed(Applied(lease("a", version)))
    assert int(repr(barrier).removeprefix("<Barrier keys=").removesuffix(">")) <= 200


async def test_wait_for_a_delete_that_times_out_leaves_nothing_behind(cache: Cache) -> None:
    informer = await synced(cache, LEASE)
    for number in range(11, 14):
        await informer.feed(Applied(lease(f"a-{number}", number)))
        barrier = Barrier(cache, clock=ManualClock(), timeout_s=0)
        barrier.note("job", [Deleted(LEASE, Key("ns", f"a-{number}"), f"uid-a-{number}")])
        assert not await barrier.wait("job")
    assert repr(informer._milestones) == "<Milestones versions=0 keys=0>"
