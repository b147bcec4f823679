"""Runs one controller for one term of leadership: turns changes into keys and reconciles the keys.

A runner starts with an empty queue. Attaching its handlers replays every cached object, so each term begins by
looking at everything once, with low priority.
"""

import logging
import uuid
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
import structlog

from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Change
from torchctl.runtime.cancellation import cancelled_only_if_asked
from torchctl.runtime.client.writes import record_writes
from torchctl.runtime.clock import Clock
from torchctl.runtime.controller import Controller, ExternalSource, Source
from torchctl.runtime.handler import requests_for
from torchctl.runtime.logging import reconcile_context
from torchctl.runtime.metrics import ControllerMetrics
from torchctl.runtime.reconcile import Conclusion, Request, conclusion_of_error
from torchctl.runtime.settings import RuntimeSettings
from torchctl.runtime.supervise import EssentialTaskError
from torchctl.runtime.workqueue import LOW_PRIORITY, Queue, QueueClosed, Statistics

__all__ = ["Runner"]

MAP_AGAIN_S = 5.0
"""Seconds after which a change is mapped again whose mapper or predicate raised."""

NAME = "torchctl.controller"

log = structlog.get_logger(NAME)
_level = logging.getLogger(NAME)


@dataclass(frozen=True, slots=True, eq=False)
class _Enqueue:
    """Turns the changes of one source into keys."""

    source: Source
    queue: Queue[Request]
    metrics: ControllerMetrics
    failed: dict[Request, Change[Any]] = field(default_factory=dict)
    """Changes whose predicate or mapper raised. They are mapped again, or they would be lost until the next one."""

    def on_event(self, change: Change[Any]) -> None:
        try:
            self._enqueue(change)
        except (Exception, CancelledError):  # nothing is awaited here, so a CancelledError is somebody else's
            first = self.failed.get(change.key, change)
            self.failed[change.key] = msgspec.structs.replace(change, old=first.old)
            raise
        self.failed.pop(change.key, None)

    def try_again(self) -> None:
        """Maps what could not be mapped before."""
        for change in (*self.failed.values(),):
            with suppress(Exception, CancelledError):  # reported the first time
                self.on_event(change)

    def _enqueue(self, change: Change[Any]) -> None:
        if not self.source.predicate(change):
            return
        priority = LOW_PRIORITY if change.initial else 0
        for request in requests_for(change, self.source.mapper):
            self.queue.add(request, priority=priority, delay_s=self.source.delay_s)
            if self.source.delay_s > 0:
                self.metrics.queue.retries_total.inc()


class Runner:
    """One controller at work. Runs once; the next term of leadership gets a new one."""

    def __init__(
        self,
        controller: Controller,
        *,
        cache: Cache,
        barrier: Barrier,
        metrics: ControllerMetrics,
        clock: Clock,
        settings: RuntimeSettings | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._controller = controller
        self._cache = cache
        self._barrier = barrier
        self._metrics = metrics
        self._clock = clock
        self._new_id = new_id
        self._queue: Queue[Request] = Queue(
            controller.limiter(),
            clock,
            group=lambda request: request.namespace,
            on_due=metrics.queue.adds_total.inc,
        )
        settings = settings or RuntimeSettings()
        self._workers = controller.workers or settings.workers
        self._timeout_s = controller.timeout_s or settings.reconcile_timeout_s
        self._sampling_period_s = settings.sampling_period_s
        self._handlers: list[_Enqueue] = []
        self._resync_s = settings.resync_s if controller.resync_s is None else controller.resync_s
        metrics.max_concurrent.set(self._workers)

    def __repr__(self) -> str:
        return f"<Runner of {self._controller.name}: {self._queue!r}>"

    @property
    def name(self) -> str:
        return self._controller.name

    def statistics(self) -> Statistics:
        return self._queue.statistics()

    def close(self) -> None:
        """No further reconcile begins; `run` ends when those under way have ended."""
        self._queue.close()

    async def run(self) -> None:
        """Reconciles until `close` or cancellation. The cache must be in sync.

        Raises:
            EssentialTaskError: The workers ended although neither was asked for.
        """
        try:
            with ExitStack() as handlers:
                for source in self._controller.sources:
                    await self._attach(source, handlers)
                await self._run_workers()
            if not self._queue.is_closed:
                raise EssentialTaskError(f"controller {self.name}")
        finally:
            self._queue.close()

    async def _run_workers(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._publish)
            tasks.start_soon(self._try_again)
            if self._resync_s > 0:
                tasks.start_soon(self._resync)
            for source in self._controller.external:
                tasks.start_soon(self._listen, source)
            async with anyio.create_task_group() as workers:
                for _ in range(self._workers):
                    workers.start_soon(self._work)
            tasks.cancel_scope.cancel()

    async def _attach(self, source: Source, handlers: ExitStack) -> None:
        handler = _Enqueue(source, self._queue, self._metrics)
        self._handlers.append(handler)
        for informer in self._cache.register_all(source.kind, **source.selection):
            handlers.callback(informer.remove_handler, handler)
            await informer.attach(handler)

    async def _try_again(self) -> None:
        while True:
            await self._clock.sleep(MAP_AGAIN_S)
            for handler in self._handlers:
                handler.try_again()

    async def _listen(self, source: ExternalSource) -> None:
        try:
            with cancelled_only_if_asked():
                await source(self._add)
        except Exception as error:
            raise EssentialTaskError(f"a source of controller {self.name}", error) from error

    def _add(self, request: Request, /, *, priority: int = 0, delay_s: float = 0.0) -> None:
        self._queue.add(request, priority=priority, delay_s=delay_s)
        if delay_s > 0:
            self._metrics.queue.retries_total.inc()

    async def _resync(self) -> None:
        """Adds each cached object of the first source once in `resync_s`, one after the other."""
        source = self._controller.sources[0]
        while True:
            informers = self._cache.register_all(source.kind, **source.selection)
            # All of one moment: what comes to one reader meanwhile would else stretch the period for the others.
            cached = [(informer.reader, informer.reader.all_keys()) for informer in informers]
            count = sum(len(reader) for reader, _ in cached)
            for reader, keys in cached:
                for key in keys:
                    await self._clock.sleep(self._resync_s / count)
                    with suppress(Exception, CancelledError):  # a mapper that raises was reported at the change
                        for request in source.mapper(obj) if (obj := reader.get(key)) is not None else ():
                            self._queue.add(request, priority=LOW_PRIORITY)
            if not count:
                await self._clock.sleep(self._resync_s)

    async def _publish(self) -> None:
        published = None
        try:
            while True:
                if (load := self._queue.load()) != published:
                    self._metrics.queue.set_depth(load.due_by_priority)
                    self._metrics.queue.set_work(load.processing_s, load.longest_processing_s)
                    published = load
                await self._clock.sleep(self._sampling_period_s)
        finally:  # the queue ends with the term, and its keys are no longer a backlog
            self._metrics.queue.set_depth({})
            self._metrics.queue.set_work(0.0, 0.0)

    async def _work(self) -> None:
        while True:
            try:
                item = await self._queue.get()
            except QueueClosed:
                return
            self._metrics.queue.queue_duration_seconds.observe(item.waited_s)
            self._metrics.active_workers.inc()
            try:
                with reconcile_context(self.name, item.key, self._new_id):
                    self._settle(item.key, await self._attempt(item.key))
            finally:
                self._metrics.active_workers.dec()
                self._metrics.queue.work_duration_seconds.observe(self._queue.done(item.key))

    async def _attempt(self, request: Request) -> Conclusion:
        await self._barrier.wait(request)
        self._queue.absorb(request)  # the cache shows what happened while the key waited
        began_s = self._clock.monotonic()
        with record_writes() as writes:
            try:
                with cancelled_only_if_asked(), anyio.fail_after(self._timeout_s):
                    return Conclusion.of(await self._controller.reconcile(request))
            except Exception as error:
                return conclusion_of_error(error, fenced=self._controller.leader_elected)
            finally:
                self._metrics.time_seconds.observe(self._clock.monotonic() - began_s)
                self._barrier.note(request, writes)

    def _settle(self, request: Request, conclusion: Conclusion) -> None:
        self._count(conclusion)
        delays_s = [] if conclusion.requeue_after_s is None else [conclusion.requeue_after_s]
        if conclusion.retry:
            delays_s.append(self._queue.add_rate_limited(request))
            self._metrics.queue.retries_total.inc()
        elif not conclusion.terminal:
            self._queue.forget(request)
        if conclusion.requeue_after_s is not None:
            self._queue.add_after(request, conclusion.requeue_after_s)
            self._metrics.queue.retries_total.inc()
        self._report(conclusion, min(delays_s, default=None))

    def _count(self, conclusion: Conclusion) -> None:
        self._metrics.reconcile_total[conclusion.kind].inc()
        for counts, counter in (
            (conclusion.kind == "error", self._metrics.errors_total),
            (conclusion.terminal, self._metrics.terminal_errors_total),
            (conclusion.timeout, self._metrics.timeouts_total),
            (conclusion.panic, self._metrics.panics_total),
        ):
            if counts:
                counter.inc()

    def _report(self, conclusion: Conclusion, delay_s: float | None) -> None:
        if conclusion.kind != "error":
            if not _level.isEnabledFor(logging.DEBUG):  # to find that out otherwise costs more than the rest of this
                return
            why = {} if conclusion.error is None else {"reason": conclusion.reason}
            log.debug("reconciled", result=str(conclusion.kind), again_in_s=delay_s, **why)
        elif conclusion.panic:
            log.error("reconcile raised", again_in_s=delay_s, exc_info=conclusion.error)
        else:
            log.error("reconcile failed", again_in_s=delay_s, terminal=conclusion.terminal, error=conclusion.reason)
