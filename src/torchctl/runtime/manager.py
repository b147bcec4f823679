"""The manager: starts all parts of a controller process in order and stops them in reverse.

    servers     first up, last down: a probe must find an answer while the caches still load
    loop lag    measures from the start
    caches      warm on every replica, so that a new leader begins at once
    replica     webhooks, tasks and controllers that every replica runs
    leadership  last up, first down: the controllers run inside of it, and only there; around them the Event
                recorder, which outlives them and writes what they recorded last while the lease still holds

Losing the lease cancels the controllers and nothing else; the process campaigns again with warm caches. A task
of the list that ends by itself ends the process with an error that names it.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import anyio
import structlog
from anyio.abc import TaskGroup

from torchctl.runtime.access.readers import Readers
from torchctl.runtime.apply import Applier
from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cancellation import cancelled_only_if_asked
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.sockets import bound_tls_buffers
from torchctl.runtime.client.writes import writes_so_far
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.controller import Controller
from torchctl.runtime.events import EventRecorder
from torchctl.runtime.health import HealthChecks
from torchctl.runtime.leaderelection.elector import LeaderElector
from torchctl.runtime.looplag import LoopLag
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.runner import Runner
from torchctl.runtime.server import METRICS, Server
from torchctl.runtime.settings import RuntimeSettings
from torchctl.runtime.supervise import EssentialTaskError, essential
from torchctl.runtime.webhooks import Webhooks
from torchctl.runtime.workqueue import Statistics

__all__ = ["Manager", "Setup", "Task"]

Task = Callable[[], Awaitable[None]]
"""Work of a program's own beside its controllers. It may return; if it raises, the process ends."""

log = structlog.get_logger("torchctl.manager")


class Manager:
    """Runs controllers over one client and one shared cache.

    Args:
        rng: Gives the jitter of the watches' delays.

    Attributes:
        client: For reads that must be live, and for writes. Writes are fenced by leadership.
        cache: Shared by all controllers. Register further kinds and indexes here before `run`.
        applier: Server-side apply of children.
        events: Records Events.
        health: Add checks of your own here.
        webhooks: Add admission webhooks here; every replica serves them.
    """

    def __init__(
        self,
        client: Client,
        *,
        settings: RuntimeSettings | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        elector: LeaderElector | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.client = client
        self.settings = settings if settings is not None else RuntimeSettings()
        self.metrics = metrics if metrics is not None else Metrics()
        self.clock = clock if clock is not None else SystemClock()
        self.health = HealthChecks()
        self.cache = Cache(client, metrics=self.metrics, clock=self.clock, rng=rng, namespace=self.settings.namespace)
        self.applier = Applier(client, self.cache)
        self.events = EventRecorder(client, client.field_manager, metrics=self.metrics, clock=self.clock)
        self.webhooks = Webhooks(self.settings.webhooks, client.codec, self.metrics, self.clock)
        self._elector = elector
        self._lag = LoopLag(
            self.clock,
            self.metrics.event_loop_lag_seconds,
            limit_s=self.settings.loop_lag_limit_s,
            period_s=self.settings.sampling_period_s,
        )
        readers = Readers(client, self.clock, METRICS) if self.settings.server.metrics_auth else None
        self._server = Server(self.settings.server, self.metrics.registry, self.health, self.clock, readers)
        self._controllers: dict[Controller, Barrier] = {}
        self._tasks: dict[bool, list[tuple[str, Task]]] = {True: [], False: []}
        self._barrier = Barrier(self.cache, clock=self.clock, timeout_s=self.settings.barrier_timeout_s)
        self._runners: list[Runner] = []
        self._own_runners: list[Runner] = []
        self._stopping = False
        self._drained, self._replica_drained = anyio.Event(), anyio.Event()

    def __repr__(self) -> str:
        return f"<Manager of {', '.join(controller.name for controller in self._controllers) or 'nothing'}>"

    def add(self, controller: Controller) -> None:
        """Registers a controller and its kinds. Call it before `run`.

        Raises:
            ValueError: A controller of that name exists, or this one watches nothing.
        """
        if not controller.sources:
            raise ValueError(f"controller {controller.name} watches nothing: declare for_(kind)")
        if any(known.name == controller.name for known in self._controllers):
            raise ValueError(f"a controller named {controller.name} exists already")
        for source in controller.sources:
            self.cache.register_all(source.kind, **source.selection)
        self._controllers[controller] = Barrier(
            self.cache,
            clock=self.clock,
            metrics=self.metrics.for_controller(controller.name),
            timeout_s=self.settings.barrier_timeout_s,
        )

    def add_task(self, name: str, task: Task, *, leader_elected: bool = True) -> None:
        """Registers work of the program's own, which runs while this process leads. Call it before `run`.

        It begins when the caches are in sync, and is cancelled at the end of each term.

        Args:
            name: Names the task in the error that ends the process.
            leader_elected: False: each replica runs it, once, until it stops.
        """
        self._tasks[leader_elected].append((name, task))

    async def caught_up(self) -> bool:
        """Waits until the cache shows what the current reconcile has written so far.

        Returns:
            False if that took longer than the settings' `barrier_timeout_s`.
        """
        return await self._barrier.catch_up(writes_so_far())

    def statistics(self) -> dict[str, Statistics]:
        """The workqueue of each controller at work, by its name; nothing while this process does not lead."""
        return {runner.name: runner.statistics() for runner in (*self._own_runners, *self._runners)}

    async def run(self, stop: anyio.Event) -> None:
        """Runs until `stop` is set, then stops gracefully: reconciles end, the lease is released, caches close.

        Raises:
            ExceptionGroup: With an `EssentialTaskError` for each task that ended by itself, or `NotSynced` if the
                caches did not get in sync in time.
        """
        bound_tls_buffers()
        self._add_checks()
        async with AsyncExitStack() as stack:
            for name, task, ready in (
                ("HTTP server", self._server.run, True),
                ("event loop monitor", self._lag.run, False),
                ("cache", self.cache.run, True),
            ):
                await stack.enter_async_context(essential(name, task, ready=ready))
            if not await self._load(stop):
                return
            log.info("caches in sync", kinds=len(list(self.cache.all())))
            if self.webhooks:
                await stack.enter_async_context(essential("webhooks", self.webhooks.run, ready=True))
            await stack.enter_async_context(essential("tasks of this replica", self._work_as_replica))
            await stack.enter_async_context(essential("leadership", self._campaign))
            await stop.wait()
            await self._drain()

    async def _load(self, stop: anyio.Event) -> bool:
        """Waits for the caches. Returns False if `stop` was set first."""
        async with anyio.create_task_group() as tasks:

            async def give_up() -> None:
                await stop.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up)
            await self.cache.wait_synced(self.settings.cache_sync_timeout_s)
            tasks.cancel_scope.cancel()
        return not stop.is_set()

    async def _campaign(self) -> None:
        if self._elector is None:
            await self._lead()
        else:
            await self._elector.run(self._lead)

    async def _lead(self) -> None:
        """Runs the controllers for one term of leadership. After a graceful stop it waits to be cancelled."""
        if self._stopping:
            await anyio.sleep_forever()
        self._runners = self._new_runners(leader_elected=True)
        log.info("leading", controllers=[runner.name for runner in self._runners])
        try:
            async with essential("event recorder", self.events.run), anyio.create_task_group() as others:
                self._start_tasks(others, leader_elected=True)
                async with anyio.create_task_group() as tasks:
                    for runner in self._runners:
                        tasks.start_soon(runner.run)
                    if not self._runners:
                        await anyio.sleep_forever()
                others.cancel_scope.cancel()
        finally:
            self._runners = []
            log.info("not leading")
            if self._stopping:
                self._drained.set()
        if self._stopping:
            await anyio.sleep_forever()

    async def _work_as_replica(self) -> None:
        """Runs what does not depend on leadership, until cancelled."""
        async with anyio.create_task_group() as others:
            self._start_tasks(others, leader_elected=False)
            if not self._stopping:
                self._own_runners = self._new_runners(leader_elected=False)
            async with anyio.create_task_group() as tasks:
                for runner in self._own_runners:
                    tasks.start_soon(runner.run)
            self._replica_drained.set()
            await anyio.sleep_forever()

    def _start_tasks(self, tasks: TaskGroup, *, leader_elected: bool) -> None:
        for name, task in self._tasks[leader_elected]:
            tasks.start_soon(_named, name, task)

    def _new_runners(self, *, leader_elected: bool) -> list[Runner]:
        chosen = (each for each in self._controllers.items() if each[0].leader_elected is leader_elected)
        return [self._new_runner(*each) for each in chosen]

    def _new_runner(self, controller: Controller, barrier: Barrier) -> Runner:
        return Runner(
            controller,
            cache=self.cache,
            barrier=barrier,
            metrics=self.metrics.for_controller(controller.name),
            clock=self.clock,
            settings=self.settings,
        )

    async def _drain(self) -> None:
        self._stopping = True
        leads = bool(self._runners)
        log.info("stopping: waiting for reconciles under way", grace_s=self.settings.shutdown_grace_s)
        for runner in (*self._own_runners, *self._runners):
            runner.close()
        with anyio.move_on_after(self.settings.shutdown_grace_s):
            await self._replica_drained.wait()
            if leads:
                await self._drained.wait()

    def _add_checks(self) -> None:
        self.health.add_live("event-loop", self._lag.check)
        if self._elector is not None:
            self.health.add_live("leadership", self._elector.check)
        self.health.add_live("workqueues", self._queues_complaint)
        self.health.add_live("watches", self._watches_complaint)
        self.health.add_live("watch-access", self._refusals_complaint)
        self.health.add_ready("caches", lambda: "" if self.cache.synced else "the first lists are not complete")

    def _queues_complaint(self) -> str:
        stalled_s = max((queue.stalled_s for queue in self.statistics().values()), default=0.0)
        limit_s = self.settings.queue_age_limit_s
        return f"keys are due and no worker took one for {stalled_s:.0f} s" if stalled_s > limit_s else ""

    def _watches_complaint(self) -> str:
        limit_s = self.settings.watch_age_limit_s
        silent = [informer.kind.resource for informer in self.cache.all() if informer.idle() > limit_s]
        return f"no attempt for {limit_s:.0f} s to watch {', '.join(silent)}" if silent else ""

    def _refusals_complaint(self) -> str:
        limit_s = self.settings.watch_refused_limit_s
        refused = [one for one in self.cache.all() if not one.optional and one.refused() > limit_s]
        told = "; ".join(f"{informer.kind.resource}: {informer.unavailable_reason}" for informer in refused)
        return f"refused for more than {limit_s:.0f} s: {told}" if refused else ""


async def _named(name: str, task: Task) -> None:
    """Runs a task; its error names it."""
    try:
        with cancelled_only_if_asked():
            await task()
    except Exception as error:
        raise EssentialTaskError(name, error) from error


Setup = Callable[[Manager], None]
"""An entry point of the group `torchctl.reconcilers`: a function that adds its controllers to the manager."""
