from collections.abc import Awaitable, Callable, Iterable

import anyio
import pytest
from anyio.lowlevel import checkpoint
from prometheus_client import CollectorRegistry

from torchctl.runtime.cache.informer import Change, Informer
from torchctl.runtime.client.codec import Undecodable
from torchctl.runtime.kinds import LEASE, Key, Lease, ObjectMeta
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.watch.events import (
    Absent,
    Applied,
    Available,
    Bookmarked,
    Init,
    InitDone,
    Removed,
    Skipped,
    Unavailable,
)
from torchctl.runtime.watch.selector import Selector
from torchctl.testing.clock import ManualClock

A = Key("ns", "a")


def lease(name: str, version: int) -> Lease:
    return Lease(ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", resource_version=str(version)))


def listed(version: int, *objects: Lease) -> Iterable[Init | Applied[Lease] | InitDone]:
    return (Init(), *map(Applied, objects), InitDone(str(version)))


class Recorder:
    """A handler that keeps what it was told, and raises on the object called `trap`."""

    def __init__(self, trap: str = "") -> None:
        self.told: list[tuple[str, str, bool]] = []
        self.trap = trap

    def on_event(self, event: Change[Lease]) -> None:
        if event.key.name == self.trap:
            raise RuntimeError("choked")
        self.told.append((event.type, event.key.name, event.initial))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry(), process=False)


@pytest.fixture
def informer(clock: ManualClock, metrics: Metrics) -> Informer[Lease]:
    return Informer(LEASE, Selector(), clock=clock, metrics=metrics)


async def fill(informer: Informer[Lease], version: int, *objects: Lease) -> None:
    for event in listed(version, *objects):
        await informer.feed(event)


async def test_it_is_synced_once_a_list_is_complete(informer: Informer[Lease]) -> None:
    await informer.feed(Init())
    await informer.feed(Applied(lease("a", 3)))
    assert (informer.stats().synced, informer.stats().resource_version) == (False, 0)
    await informer.feed(InitDone("10"))
    assert informer.stats().synced
    assert informer.resource_version == 10
    await informer.wait_synced()


async def test_the_version_follows_events_and_bookmarks(informer: Informer[Lease]) -> None:
    await fill(informer, 10)
    await informer.feed(Applied(lease("a", 12)))
    assert informer.resource_version == 12
    await informer.feed(Bookmarked("20"))
    assert informer.resource_version == 20
    await informer.feed(Removed(lease("a", 21)))
    assert informer.resource_version == 21
    await informer.feed(Skipped(Undecodable(LEASE, A, "bad", resource_version="22")))
    assert informer.resource_version == 22


async def test_a_list_under_way_does_not_move_the_version(informer: Informer[Lease]) -> None:
    await fill(informer, 10)
    await informer.feed(Init())
    await informer.feed(Applied(lease("a", 99)))
    assert informer.resource_version == 10


async def test_handlers_are_told_in_order(informer: Informer[Lease]) -> None:
    informer.add_handler(handler := Recorder())
    await fill(informer, 10, lease("a", 3))
    await informer.feed(Applied(lease("a", 11)))
    await informer.feed(Removed(lease("a", 12)))
    assert handler.told == [("added", "a", True), ("updated", "a", False), ("deleted", "a", False)]


async def test_a_late_handler_is_told_what_is_there(informer: Informer[Lease]) -> None:
    await fill(informer, 10, lease("a", 3))
    informer.add_handler(handler := Recorder())
    await informer.feed(Applied(lease("b", 11)))
    assert handler.told == [("added", "a", True), ("added", "b", False)]


MANY = 2000


def leases(version: int = 3) -> list[Lease]:
    return [lease(str(number), version) for number in range(MANY)]


async def turns_of_others(work: Awaitable[None]) -> int:
    """Returns how often another task runs while the work is done."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await work
        tasks.cancel_scope.cancel()
    return turns


async def test_attached_handler_is_told_all_while_others_run(informer: Informer[Lease]) -> None:
    await fill(informer, 10, *leases())
    turns = await turns_of_others(informer.attach(handler := Recorder()))
    assert handler.told == [("added", str(number), True) for number in range(MANY)]
    assert turns >= MANY // 64


async def test_relist_without_changes_lets_others_run(informer: Informer[Lease]) -> None:
    await fill(informer, 10, *leases())
    await informer.feed(Init())
    for obj in leases():
        await informer.feed(Applied(obj))
    assert await turns_of_others(informer.feed(InitDone("11"))) >= MANY // 1024
    assert informer.stats().changes == MANY


async def test_changes_during_a_replay_keep_their_order(informer: Informer[Lease]) -> None:
    """Of an object that is told already, of two that are not yet, and of a new one."""
    await fill(informer, 10, *leases())
    handler, last = Recorder(), str(MANY - 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(informer.attach, handler)
        while not handler.told:
            await checkpoint()
        assert len(handler.told) < MANY
        for event in (Applied(lease("0", 11)), Removed(lease(last, 12)), Applied(lease("new", 13))):
            await informer.feed(event)
        await informer.feed(Applied(lease(str(MANY - 2), 14)))
    by_name = {name: [told[0] for told in handler.told if told[1] == name] for _, name, _ in handler.told}
    assert by_name.pop("0") == ["added", "updated"]
    assert by_name.pop(last) == ["added", "deleted"]
    assert by_name.pop("new") == ["added"]
    assert by_name.pop(str(MANY - 2)) == ["added", "updated"]
    assert {*map(tuple, by_name.values())} == {("added",)}


async def test_a_handler_that_was_removed_is_told_nothing(informer: Informer[Lease]) -> None:
    informer.add_handler(handler := Recorder())
    informer.remove_handler(handler)
    await fill(informer, 10, lease("a", 3))
    assert handler.told == []


async def test_a_watch_that_fails_ages_and_is_not_idle(informer: Informer[Lease], clock: ManualClock) -> None:
    clock.seconds += 400
    informer.tried()
    assert (informer.age(), informer.idle()) == (400, 0)


async def test_handler_added_during_a_list_hears_each_object_once(
    informer: Informer[Lease],
) -> None:
    late = Recorder()

    class Inviter:
        def on_event(self, event: Change[Lease]) -> None:
            if event.key.name == "b":
                informer.add_handler(late)

    informer.add_handler(Inviter())
    await fill(informer, 10, lease("a", 3), lease("b", 4), lease("c", 5))
    assert [name for _, name, _ in late.told] == ["a", "b", "c"]


async def test_a_handler_that_raises_is_counted_and_stops_nobody(informer: Informer[Lease], metrics: Metrics) -> None:
    informer.add_handler(Recorder(trap="a"))
    informer.add_handler(good := Recorder())
    await fill(informer, 10, lease("a", 3), lease("b", 4))
    assert [name for _, name, _ in good.told] == ["a", "b"]
    assert informer.stats().handler_errors == 1
    assert sample(metrics, "torchctl_handler_errors_total") == 1


async def test_a_long_list_lets_other_tasks_run(informer: Informer[Lease]) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while not informer.synced:
            turns += 1
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await fill(informer, 5000, *(lease(f"o{n}", n) for n in range(1, 1001)))
    assert turns >= 10


async def test_being_unavailable_settles_and_heals(informer: Informer[Lease]) -> None:
    await informer.feed(Unavailable("no such resource"))
    assert informer.settled
    assert (informer.stats().available, informer.stats().synced) == (False, False)
    await fill(informer, 10)
    assert (informer.stats().available, informer.stats().synced) == (True, True)


async def test_what_is_cached_outlives_the_resource(informer: Informer[Lease]) -> None:
    await fill(informer, 10, lease("a", 3))
    await informer.feed(Unavailable("no such resource"))
    assert informer.reader.get(A) is not None


@pytest.mark.parametrize(
    ("before", "answers", "absent"),
    [
        (False, [Unavailable("no such resource", missing=True)], True),
        (False, [Unavailable("forbidden")], False),
        (False, [Unavailable("no such resource", missing=True), Unavailable("forbidden")], False),
        (True, [Unavailable("no such resource", missing=True)], False),
        (True, [Unavailable("no such resource", missing=True), Absent()], True),
    ],
)
async def test_a_cached_kind_has_to_be_missing_for_long(
    clock: ManualClock, before: bool, answers: list[Unavailable | Absent], absent: bool
) -> None:
    informer: Informer[Lease] = Informer(LEASE, Selector(), clock=clock, optional=True)
    if before:
        await fill(informer, 10, lease("a", 3))
    for answer in answers:
        await informer.feed(answer)
    assert informer.absent == absent
    await fill(informer, 20)
    assert not informer.absent


async def test_optional_kind_that_is_gone_leaves_no_ghosts(clock: ManualClock) -> None:
    informer: Informer[Lease] = Informer(LEASE, Selector(), clock=clock, optional=True)
    await fill(informer, 10, lease("a", 3), lease("b", 4))
    informer.add_handler(recorder := Recorder())
    await informer.feed(Unavailable("no such resource", missing=True))
    await informer.feed(Absent())
    assert len(informer.reader) == 0
    assert recorder.told[2:] == [("deleted", "a", False), ("deleted", "b", False)]
    await fill(informer, 20, lease("a", 15))
    assert informer.reader.get(A) is not None


async def test_required_kind_that_is_not_found_keeps_its_objects(informer: Informer[Lease]) -> None:
    """Otherwise a wrong route in front of the API server would look as if all pods had vanished."""
    await fill(informer, 10, lease("a", 3))
    await informer.feed(Unavailable("404 page not found", missing=True))
    await informer.feed(Absent())
    assert informer.reader.get(A) is not None


async def test_refusal_lasts_until_a_stream_is_open(informer: Informer[Lease], clock: ManualClock) -> None:
    """Whatever is listed meanwhile, so that a right to list and none to watch is found."""
    await fill(informer, 10)
    for version in range(4):
        clock.seconds += 20
        await informer.feed(Unavailable("watch is forbidden"))
        await fill(informer, 11 + version)
    assert (informer.is_refused, informer.refused(), informer.unavailable_reason) == (True, 60, "watch is forbidden")
    await informer.feed(Available())
    assert (informer.is_refused, informer.refused(), informer.unavailable_reason) == (False, 0, "")


async def test_an_outage_after_a_refusal_is_no_refusal(informer: Informer[Lease], clock: ManualClock) -> None:
    """An API server refuses for a moment as it starts, and may be away for long after that."""
    await fill(informer, 10)
    await informer.feed(Unavailable("forbidden"))
    for _ in range(20):
        clock.seconds += 20
        informer.tried()
    assert (informer.is_refused, informer.refused(), informer.age()) == (True, 0, 400)
    await informer.feed(Unavailable("forbidden"))
    assert (informer.is_refused, informer.refused()) == (True, 0)
    clock.seconds += 60
    await informer.feed(Unavailable("forbidden"))
    assert informer.refused() == 60


async def test_optional_kind_that_is_not_served_does_not_age(clock: ManualClock) -> None:
    informer: Informer[Lease] = Informer(LEASE, Selector(), clock=clock, optional=True)
    clock.seconds += 60
    await informer.feed(Unavailable("404 page not found", missing=True))
    assert informer.age() == 0
    clock.seconds += 60
    await informer.feed(Unavailable("forbidden"))
    assert informer.age() == 60


async def test_a_forced_list_takes_the_version_back(informer: Informer[Lease]) -> None:
    await fill(informer, 10)
    await informer.feed(Init())
    await informer.feed(InitDone("5", forced=True))
    assert informer.resource_version == 5


class TestWaiting:
    async def test_for_a_version_ends_when_it_is_reached(self, informer: Informer[Lease]) -> None:
        await fill(informer, 10)
        order: list[int] = []

        async def waiter(version: int) -> None:
            await informer.wait_version(version)
            order.append(version)

        async with anyio.create_task_group() as tasks:
            for version in (13, 9, 11):
                tasks.start_soon(waiter, version)
            await settle(lambda: order == [9])
            await informer.feed(Applied(lease("a", 11)))
            await settle(lambda: order == [9, 11])
            await informer.feed(Bookmarked("20"))
        assert order == [9, 11, 13]

    async def test_for_a_version_can_be_cancelled(self, informer: Informer[Lease]) -> None:
        with anyio.move_on_after(0):
            await informer.wait_version(5)
        await fill(informer, 10)
        assert informer.resource_version == 10

    async def test_for_a_delete_ends_when_the_object_is_gone(self, informer: Informer[Lease]) -> None:
        await fill(informer, 10, lease("a", 3))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.wait_gone, A, "uid-a")
            await checkpoint()
            await informer.feed(Applied(lease("a", 11)))
            await checkpoint()
            assert tasks.cancel_scope.cancel_called is False
            await informer.feed(Removed(lease("a", 12)))

    async def test_for_a_delete_that_was_seen_ends_at_once(self, informer: Informer[Lease]) -> None:
        await informer.wait_gone(A, "uid-a")


async def test_statistics_and_metrics_say_how_it_is(
    informer: Informer[Lease], metrics: Metrics, clock: ManualClock
) -> None:
    await fill(informer, 10, lease("a", 3))
    await informer.feed(Skipped(Undecodable(LEASE, Key("ns", "bad"), "expected int", resource_version="11")))
    informer.heard()
    clock.seconds += 7
    stats = informer.stats()
    assert (stats.objects, stats.undecodable, stats.lists, stats.age_s) == (1, 1, 1, 7.0)
    assert sample(metrics, "torchctl_watch_relists_total") == 1
    assert sample(metrics, "torchctl_undecodable_objects_total") == 1


def sample(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"resource": LEASE.resource})


async def settle(condition: Callable[[], bool]) -> None:
    """Lets other tasks run until the condition holds."""
    with anyio.fail_after(5):
        while not condition():
            await checkpoint()
