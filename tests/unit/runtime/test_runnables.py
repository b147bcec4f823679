"""What a manager runs besides watches, on the fake API server and in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from torchctl.runtime.client.requests import get
from torchctl.runtime.client.warnings import Warnings
from torchctl.runtime.controller import Controller, Enqueue
from torchctl.runtime.kinds import Key, Kind, PartialObject, metadata_of
from torchctl.runtime.leaderelection.fence import Fence
from torchctl.runtime.manager import Manager
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.reconcile import Request
from torchctl.runtime.settings import RuntimeSettings, ServerSettings
from torchctl.runtime.supervise import EssentialTaskError
from torchctl.testing import virtualtime
from torchctl.testing.fake import FakeApiServer, Served

THING: Kind[PartialObject] = Kind("things.test", "v1", "Thing", "things", PartialObject)


class Never:
    """An elector of a replica that never leads."""

    def check(self) -> str:
        return ""

    async def run(self, lead: Any) -> None:
        await anyio.sleep_forever()


def thing(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": THING.api_version, "kind": THING.kind, "metadata": {"name": name, **meta}}


class World:
    """A server with a manager that has not begun."""

    def __init__(self, *, elector: Any = None, **settings: Any) -> None:
        clock = virtualtime.VirtualClock()
        self.server = FakeApiServer([Served(THING)], clock=clock)
        self.client = self.server.client()
        self.manager = Manager(
            self.server.client(fence=Fence(clock)) if elector is not None else self.client,
            settings=RuntimeSettings(server=ServerSettings(metrics_port=None, health_port=None), **settings),
            metrics=Metrics(process=False),
            clock=clock,
            elector=elector,
        )
        self.seen: list[tuple[str, float]] = []

    async def note(self, request: Request) -> None:
        self.seen.append((request.name, anyio.current_time()))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.manager.run, stop)
            yield
            stop.set()


def test_external_source_enqueues_with_priority_and_delay() -> None:
    async def main() -> None:
        world = World(workers=1)

        async def source(enqueue: Enqueue) -> None:
            enqueue(Key("ns", "later"), delay_s=5.0)
            enqueue(Key("ns", "low"))
            enqueue(Key("ns", "high"), priority=10)

        world.manager.add(Controller("c", world.note).for_(THING).listens(source))
        async with world.running():
            await anyio.sleep(10)
        assert [name for name, _ in world.seen] == ["high", "low", "later"]
        assert world.seen[-1][1] - world.seen[0][1] == pytest.approx(5.0, abs=0.1)
        labels = {"name": "c", "controller": "c"}
        assert world.manager.metrics.registry.get_sample_value("workqueue_retries_total", labels) == 1

    virtualtime.run(main)


def test_source_that_fails_ends_the_process_by_name() -> None:
    async def main() -> None:
        world = World()

        async def source(enqueue: Enqueue) -> None:
            raise RuntimeError("the queue is gone")

        world.manager.add(Controller("c", world.note).for_(THING).listens(source))
        async with world.running():
            await anyio.sleep(10)

    with pytest.raises(ExceptionGroup) as caught:
        virtualtime.run(main)
    assert caught.group_contains(EssentialTaskError, match="a source of controller c", depth=None)


def test_resync_spreads_all_objects_over_its_period() -> None:
    async def main() -> None:
        world = World()
        for name in "abcd":
            await world.client.create(THING, thing(name), "ns")
        world.manager.add(Controller("c", world.note, resync_s=100.0).for_(THING))
        async with world.running():
            await anyio.sleep(101)
        again = world.seen[4:]
        assert [name for name, _ in again] == ["a", "b", "c", "d"]
        assert [round(at) for _, at in again] == [25, 50, 75, 100]

    virtualtime.run(main)


def test_resync_keeps_its_period_while_a_namespace_grows() -> None:
    async def main() -> None:
        world = World(namespace="one,two")
        await world.client.create(THING, thing("a"), "one")
        world.manager.add(Controller("c", world.note, resync_s=100.0).for_(THING))
        async with world.running():
            await anyio.sleep(50)
            for number in range(10):
                await world.client.create(THING, thing(f"b{number}"), "two")
            await anyio.sleep(152)
        again = [name for name, at in world.seen if at > 60]
        assert sorted(again) == ["a", "a", *(f"b{number}" for number in range(10))]

    virtualtime.run(main)


def test_write_through_the_fence_without_leadership_is_a_fault() -> None:
    """The controller runs on each replica: it would be tried again in silence for ever."""

    async def main() -> None:
        world, done = World(elector=Never()), list[str]()
        body = {"apiVersion": THING.api_version, "kind": THING.kind, "metadata": {"name": "b", "namespace": "ns"}}

        async def fenced(request: Request) -> None:
            if request.name == "a":
                await world.manager.applier.apply(THING, body, lambda meta: True)

        async def unfenced(request: Request) -> None:
            if request.name == "a":
                await world.manager.applier.unfenced().apply(THING, body, lambda meta: True)
                done.append(request.name)

        await world.client.create(THING, thing("a"), "ns")
        for name, reconcile in (("fenced", fenced), ("unfenced", unfenced)):
            world.manager.add(Controller(name, reconcile, leader_elected=False).for_(THING))
        async with world.running():
            await anyio.sleep(1)
        assert done == ["a"]
        read = world.manager.metrics.registry.get_sample_value
        labels = [{"controller": name} for name in ("fenced", "unfenced")]
        panics = [read("controller_runtime_reconcile_panics_total", label) for label in labels]
        assert panics[0]
        assert not panics[1]

    virtualtime.run(main)


def test_tasks_and_controllers_run_without_leadership_if_they_say_so() -> None:
    async def main() -> None:
        world, ran = World(elector=Never()), list[str]()

        async def here() -> None:
            ran.append("here")

        async def leading() -> None:
            ran.append("leading")

        await world.client.create(THING, thing("a"), "ns")
        world.manager.add_task("here", here, leader_elected=False)
        world.manager.add_task("leading", leading)
        world.manager.add(Controller("all", world.note, leader_elected=False).for_(THING))
        world.manager.add(Controller("leader", world.note).for_(THING))
        async with world.running():
            await anyio.sleep(1)
            assert [*world.manager.statistics()] == ["all"]
        assert ran == ["here"]
        assert [name for name, _ in world.seen] == ["a"]

    virtualtime.run(main)


def test_task_that_fails_ends_the_process_by_name() -> None:
    async def main() -> None:
        world = World()

        async def fails() -> None:
            raise RuntimeError("no")

        world.manager.add_task("my task", fails)
        async with world.running():
            await anyio.sleep(10)

    with pytest.raises(ExceptionGroup) as caught:
        virtualtime.run(main)
    assert caught.group_contains(EssentialTaskError, match="my task", depth=None)


def test_change_whose_mapper_raised_is_mapped_again() -> None:
    async def main() -> None:
        world, broken = World(), [True]

        def mapper(obj: PartialObject) -> list[Request]:
            if broken[0]:
                raise RuntimeError("the table is not loaded")
            return [Key("ns", f"of-{obj.metadata.name}")]

        await world.client.create(THING, thing("a"), "ns")
        world.manager.add(Controller("c", world.note).watches(THING, mapper))
        async with world.running():
            await anyio.sleep(12)
            assert world.seen == []
            broken[0] = False
            await anyio.sleep(6)
        assert [name for name, _ in world.seen] == ["of-a"]

    virtualtime.run(main)


def test_several_namespaces_are_watched_and_no_others() -> None:
    async def main() -> None:
        world = World(namespace="one,two")
        for namespace in ("one", "two", "three"):
            await world.client.create(THING, thing(namespace), namespace)
        world.manager.add(Controller("c", world.note).for_(THING))
        async with world.running():
            await anyio.sleep(1)
            assert {obj.metadata.name for obj in world.manager.cache.list(THING)} == {"one", "two"}
        assert sorted(name for name, _ in world.seen) == ["one", "two"]

    virtualtime.run(main)


def test_watches_take_fields_and_a_namespace() -> None:
    async def main() -> None:
        world = World()
        for namespace in ("one", "two"):
            for name in ("a", "b"):
                await world.client.create(THING, thing(name), namespace)
        world.manager.add(Controller("c", world.note).for_(THING, fields="metadata.name=a", namespace="two"))
        async with world.running():
            await anyio.sleep(1)
        assert [name for name, _ in world.seen] == ["a"]

    virtualtime.run(main)


def test_reconcile_reads_its_own_writes_once_caught_up() -> None:
    async def main() -> None:
        world, labels = World(), list[Any]()
        manager = world.manager

        async def reconcile(request: Request) -> None:
            if not labels:
                patch = {"metadata": {"labels": {"seen": "yes"}}}
                await manager.client.merge_patch(THING, request.name, patch, namespace=request.namespace)
                assert await manager.caught_up()
                found = manager.cache.get(THING, request)
                labels.append(found and found.metadata.labels)

        await world.client.create(THING, thing("a"), "ns")
        manager.add(Controller("c", reconcile).for_(THING))
        async with world.running():
            await anyio.sleep(5)
        assert labels == [{"seen": "yes"}]

    virtualtime.run(main)


def test_metadata_kind_accepts_only_metadata() -> None:
    accept = dict(get(metadata_of(THING), "a", "ns").headers)["Accept"]
    assert accept == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def test_each_warning_of_the_server_is_logged_once() -> None:
    warnings, request = Warnings(), get(THING, "a", "ns")
    with capture_logs() as logs:
        for _ in range(2):
            warnings.log({"Warning": '299 - "v1beta1 is deprecated", 299 - "unknown field \\"spec.x\\""'}, request)
    assert [line["warning"] for line in logs] == ["v1beta1 is deprecated", 'unknown field "spec.x"']
