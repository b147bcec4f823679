"""How a manager loads, leads, complains and stops, in virtual time."""

from asyncio import sslproto
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from shelves import Shelf

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.sockets import TLS_BUFFER
from torchctl.runtime.client.writes import Written, note_write
from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import EVENT, LEASE, Event, Key, Lease, ObjectMeta
from torchctl.runtime.manager import Manager
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.reconcile import Reconciler, Request
from torchctl.runtime.settings import RuntimeSettings, ServerSettings
from torchctl.runtime.watch.events import Applied, Available, Init, InitDone, Unavailable
from torchctl.testing import virtualtime


class Campaign:
    """An elector that leads when and for as long as the test says."""

    def __init__(self) -> None:
        self.wins, self.loses = anyio.Event(), anyio.Event()
        self.terms = 0

    def check(self) -> str:
        return ""

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await self.wins.wait()
            self.wins = anyio.Event()
            self.terms += 1
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lead)
                await self.loses.wait()
                self.loses = anyio.Event()
                tasks.cancel_scope.cancel()


def meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", resource_version="1")


def new_manager(reconcile: Reconciler, *, elector: Any = None, **settings: Any) -> Manager:
    clock = virtualtime.VirtualClock()
    manager = Manager(
        Client(Shelf(), clock=clock),
        settings=RuntimeSettings(server=ServerSettings(metrics_port=None, health_port=None), **settings),
        metrics=Metrics(process=False),
        clock=clock,
        elector=elector,
    )
    manager.add(Controller("leases", reconcile).for_(LEASE))
    return manager


async def fill(manager: Manager, *names: str) -> None:
    informer = manager.cache.informer(LEASE)
    await informer.feed(Init())
    for name in names:
        await informer.feed(Applied(Lease(meta(name))))
    await informer.feed(InitDone("10"))


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[anyio.Event]:
    """Runs a manager whose watches are silent; what the cache holds is the test's to say."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(manager.run, stop)
        yield stop
        stop.set()


def test_a_controllers_process_bounds_its_tls_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", 5 * TLS_BUFFER)

    async def main() -> None:
        async with running(new_manager(never)):
            await anyio.sleep(1)

    virtualtime.run(main)
    assert sslproto.SSLProtocol.max_size == TLS_BUFFER


async def never(request: Request) -> None:
    await anyio.sleep_forever()


def test_a_stop_while_the_caches_load_is_obeyed_at_once() -> None:
    async def main() -> None:
        manager = new_manager(never)
        async with running(manager) as stop:
            await anyio.sleep(1)
            stop.set()
        assert anyio.current_time() == 1.0

    virtualtime.run(main)


def test_stop_waits_for_no_lost_term_and_begins_none() -> None:
    """A term is lost while the process stops, and could be won again."""

    async def main() -> None:
        began: list[Request] = []

        async def reconcile(request: Request) -> None:
            began.append(request)
            await anyio.sleep_forever()

        elector = Campaign()
        manager = new_manager(reconcile, elector=elector, shutdown_grace_s=30.0)
        async with running(manager) as stop:
            await fill(manager, "a")
            elector.wins.set()
            await anyio.sleep(1)
            stop.set()
            await anyio.sleep(1)
            elector.wins.set()
            elector.loses.set()
        assert anyio.current_time() < 5
        assert began == [Key("ns", "a")]

    virtualtime.run(main)


def test_health_fails_for_hung_workers_and_not_for_backlogs() -> None:
    async def main() -> None:
        async def slow(request: Request) -> None:
            await anyio.sleep(50 if anyio.current_time() < 1000 else 5000)

        manager = new_manager(slow, workers=1, reconcile_timeout_s=10_000.0, loop_lag_limit_s=1e9)
        async with running(manager) as stop:
            await fill(manager, *(f"lease-{number}" for number in range(100)))
            await anyio.sleep(900)
            assert "workqueues ok" in manager.health.live().text("/healthz")
            await anyio.sleep(700)
            assert "no worker took one" in manager.health.live().text("/healthz")
            stop.set()

    virtualtime.run(main)


def test_required_kind_that_stays_refused_fails_liveness() -> None:
    async def main() -> None:
        manager = new_manager(never, watch_refused_limit_s=60.0)
        manager.cache.register(EVENT, optional=True)
        async with running(manager):
            await fill(manager)
            await manager.cache.informer(EVENT).feed(Unavailable("forbidden"))
            await anyio.sleep(61)
            assert manager.health.live().ok, "an optional kind may be missing, or be forbidden"
            refusal = Unavailable("leases is forbidden")
            await manager.cache.informer(LEASE).feed(refusal)
            await anyio.sleep(59)
            await manager.cache.informer(LEASE).feed(refusal)
            assert manager.health.live().ok
            await anyio.sleep(2)
            await manager.cache.informer(LEASE).feed(refusal)
            report = manager.health.live()
            assert "leases.coordination.k8s.io: leases is forbidden" in report.text("healthz")
            assert not report.ok
            await fill(manager)
            assert not manager.health.live().ok, "a list alone is no watch"
            await manager.cache.informer(LEASE).feed(Available())
            assert manager.health.live().ok

    virtualtime.run(main)


def test_controllers_do_not_wait_for_each_others_writes() -> None:
    async def main() -> None:
        seen: list[float] = []

        async def writes(request: Request) -> None:
            note_write(Written(LEASE, request, "uid-a", "99"))

        async def reads(request: Request) -> None:
            seen.append(anyio.current_time())

        manager = new_manager(writes)
        manager.add(Controller("events", reads).for_(EVENT))
        events = manager.cache.informer(EVENT)
        async with running(manager) as stop:
            await fill(manager, "a")
            await events.feed(Init())
            await events.feed(InitDone("10"))
            await anyio.sleep(1)
            await events.feed(Init())
            await events.feed(Applied(Event(meta("a"))))
            await events.feed(InitDone("11"))
            await anyio.sleep(0.1)
            assert seen == [1.0]
            stop.set()

    virtualtime.run(main)


def test_the_settings_hold_where_a_controller_says_nothing() -> None:
    async def main() -> None:
        manager = new_manager(never, workers=7, shutdown_grace_s=1.0)
        async with running(manager):
            await fill(manager)
            await anyio.sleep(0.1)
            labels = {"controller": "leases"}
            sample = manager.metrics.registry.get_sample_value
            assert sample("controller_runtime_max_concurrent_reconciles", labels) == 7

    virtualtime.run(main)
