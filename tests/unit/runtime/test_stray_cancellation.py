"""A cancellation that nobody asked for ends one reconcile, one request or one step of a watch; else the process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from answers import Answers, answer
from prometheus_client import CollectorRegistry
from shelves import Shelf

from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.change import Change
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import Unavailable
from torchctl.runtime.client.exchange import Gate, HttpResponse
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.controller import Controller
from torchctl.runtime.events import EventRecorder
from torchctl.runtime.health import HealthChecks
from torchctl.runtime.kinds import LEASE, Key, Lease, ObjectMeta, ObjectReference
from torchctl.runtime.manager import Manager
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.predicate import Predicate
from torchctl.runtime.reconcile import Request
from torchctl.runtime.runner import Runner
from torchctl.runtime.settings import RuntimeSettings, ServerSettings
from torchctl.runtime.supervise import EssentialTaskError, essential
from torchctl.runtime.watch.events import Applied, Init, InitDone
from torchctl.runtime.watch.settings import WatchSettings
from torchctl.testing import virtualtime

A, B = Key("ns", "a"), Key("ns", "b")


def cancelled() -> asyncio.Future[None]:
    """A future that somebody else has cancelled."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


def stray(*_: object) -> Any:
    """Reads the result of such a future, as code that does not await may."""
    return cancelled().result()


class Term:
    """A runner over a cache that holds the Leases a and b."""

    def __init__(self, reconcile: Callable[[Request], Awaitable[None]]) -> None:
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, process=False)
        clock = virtualtime.VirtualClock()
        self.cache = Cache(Client(Answers(answer(503))), metrics=metrics, clock=clock)
        self.informer = self.cache.register(LEASE)
        self.controller = Controller("c", reconcile, workers=2).for_(LEASE)
        self.runner = Runner(
            self.controller,
            cache=self.cache,
            barrier=Barrier(self.cache, clock=clock, timeout_s=5.0),
            metrics=metrics.for_controller("c"),
            clock=clock,
        )

    async def fill(self) -> None:
        await self.informer.feed(Init())
        for name in ("a", "b"):
            meta = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", resource_version="1")
            await self.informer.feed(Applied(Lease(meta)))
        await self.informer.feed(InitDone("1"))

    def count(self, series: str) -> float:
        return self.registry.get_sample_value(series, {"controller": "c"}) or 0.0


def test_stray_cancellation_is_a_panic_of_its_key_alone() -> None:
    """The key is counted and backed off, the others are reconciled, and the controller goes on."""
    seen: list[tuple[Request, float]] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            seen.append((request, term.runner._clock.monotonic()))
            tries = [key for key, _ in seen].count(A)
            if request == A and tries < 3:
                await cancelled()
            elif request == A:
                term.runner.close()

        term = Term(reconcile)
        await term.fill()
        await term.runner.run()
        assert term.count("controller_runtime_reconcile_panics_total") == 2
        assert term.count("controller_runtime_reconcile_errors_total") == 2

    virtualtime.run(main)
    assert [key for key, _ in seen].count(B) == 1
    first, second, third = (at for key, at in seen if key == A)
    assert first < second < third


def test_stray_cancellation_in_a_reconciles_own_deadline_is_a_panic() -> None:
    async def main() -> None:
        async def reconcile(request: Request) -> None:
            term.runner.close()
            with anyio.fail_after(5):
                await cancelled()

        term = Term(reconcile)
        await term.fill()
        await term.runner.run()
        assert term.count("controller_runtime_reconcile_panics_total") >= 1

    virtualtime.run(main)


def test_runner_that_ends_unasked_names_its_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the workers, a controller that does nothing any more ends the process."""

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            return None

        term = Term(reconcile)
        await term.fill()
        monkeypatch.setattr(term.runner, "_settle", stray)
        with pytest.raises(EssentialTaskError, match="controller c ended although nothing asked it to"):
            await term.runner.run()

    virtualtime.run(main)


def test_essential_task_ended_by_a_stray_cancellation_ends_the_body() -> None:
    async def awaits() -> None:
        await cancelled()

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with essential("watcher", awaits):
                await anyio.sleep_forever()
        assert "watcher" in str(caught.value.exceptions[0])

    virtualtime.run(main)


def test_handler_that_raises_a_cancellation_stops_no_watch() -> None:
    told: list[str] = []

    class Raises:
        def on_event(self, change: Change[Any]) -> None:
            stray()

    class Told:
        def on_event(self, change: Change[Any]) -> None:
            told.append(change.key.name)

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            return None

        term = Term(reconcile)
        term.informer.add_handler(Raises())
        term.informer.add_handler(Told())
        await term.fill()
        assert term.informer.stats().handler_errors == 2

    virtualtime.run(main)
    assert told == ["a", "b"]


@pytest.mark.parametrize("part", ["mapper", "predicate"])
def test_mapper_and_predicate_that_raise_a_cancellation_end_nothing(part: str) -> None:
    async def main() -> None:
        async def reconcile(request: Request) -> None:
            if request == B:
                term.runner.close()

        term = Term(reconcile)
        if part == "mapper":
            term.controller.watches(LEASE, stray)
        else:
            term.controller.watches(LEASE, lambda lease: (), predicate=Predicate(stray))
        await term.fill()
        await term.runner.run()
        assert term.informer.stats().handler_errors == 2

    virtualtime.run(main)


def test_health_check_that_raises_a_cancellation_is_a_failing_check() -> None:
    async def main() -> None:
        checks = HealthChecks()
        checks.add_live("sound", lambda: "")
        checks.add_live("broken", stray)
        report = checks.live()
        assert not report.ok
        assert dict(report.answers)["sound"] == ""

    virtualtime.run(main)


class Interrupted(Shelf):
    """A transport of which the first request of each resource meets somebody else's cancellation."""

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        if request.path not in self.asked:
            self.asked.append(request.path)
            await cancelled()
        return await super().send(request, gate)


def test_watch_that_meets_a_stray_cancellation_lists_again() -> None:
    async def main() -> None:
        clock = virtualtime.VirtualClock()
        client = Client(Interrupted(), clock=clock)
        cache = Cache(client, clock=clock, settings=WatchSettings(streaming_list=False))
        cache.register(LEASE)
        async with essential("cache", cache.run, ready=True):
            await cache.wait_synced()

    virtualtime.run(main)


def test_event_recorder_outlives_a_stray_cancellation() -> None:
    async def main() -> None:
        clock = virtualtime.VirtualClock()
        transport = Interrupted()
        events = EventRecorder(Client(transport, clock=clock), clock=clock)
        async with essential("event recorder", events.run):
            for name in ("a", "b"):
                regarding = ObjectReference(kind="Lease", namespace="ns", name=name, uid=name)
                events.event(regarding, "Normal", "Tried", "it was tried")
                await anyio.sleep(1)
        assert len(transport.asked) >= 2

    virtualtime.run(main)


class Cancelled:
    """Credentials that are fetched by a task which somebody cancelled."""

    certificate = None

    async def authorization(self, force: bool = False) -> str | None:
        await cancelled()
        raise AssertionError


async def test_request_that_meets_a_stray_cancellation_is_unavailable() -> None:
    """Otherwise a task group around it would end as if the request had been answered."""
    async with AiohttpTransport(Connection("http://127.0.0.1:1", credentials=Cancelled())) as transport:
        with pytest.raises(Unavailable):
            await transport.send(HttpRequest("GET", "/api/v1/pods", "list"))


def test_manager_whose_controller_ends_unasked_ends_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def reconcile(request: Request) -> None:
            return None

        clock = virtualtime.VirtualClock()
        settings = RuntimeSettings(server=ServerSettings(metrics_port=None, health_port=None))
        manager = Manager(Client(Shelf(), clock=clock), settings=settings, clock=clock)
        manager.add(Controller("c", reconcile).for_(LEASE))
        monkeypatch.setattr(Runner, "_work", stray_worker)
        informer = manager.cache.informer(LEASE)
        await informer.feed(Init())
        await informer.feed(InitDone("1"))
        with pytest.raises(ExceptionGroup) as caught:
            await manager.run(anyio.Event())
        assert "controller c ended although nothing asked it to" in repr(caught.value)

    virtualtime.run(main)


async def stray_worker(_: Runner) -> None:
    await cancelled()
