"""Keeps the objects of one kind and selector cached, and tells handlers of every change."""

from asyncio import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import structlog

from torchctl.runtime.cache.change import Change, Handler
from torchctl.runtime.cache.index import IndexFunction
from torchctl.runtime.cache.milestones import Milestones
from torchctl.runtime.cache.replay import Replay
from torchctl.runtime.cache.store import Store, StoreReader
from torchctl.runtime.clock import Clock
from torchctl.runtime.kinds import Key, Kind, Object
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.watch.core import number
from torchctl.runtime.watch.events import (
    Absent,
    Applied,
    Available,
    Bookmarked,
    Init,
    InitDone,
    Removed,
    Skipped,
    StoreEvent,
    Unavailable,
)
from torchctl.runtime.watch.pace import Pace
from torchctl.runtime.watch.selector import Selector

__all__ = ["Change", "Handler", "Informer", "InformerStatistics"]

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Object)

_ROW_S = 120.0
"""Seconds after which another refusal begins a new row. Tries are a minute apart at most, and one may take 30 s."""


@dataclass(frozen=True, slots=True)
class InformerStatistics:
    """An informer at one moment, for tests, logs and /debug."""

    resource: str
    selector: str
    objects: int
    undecodable: int
    resource_version: int
    synced: bool
    available: bool
    age_s: float
    lists: int
    changes: int
    handler_errors: int


class Informer(Generic[T]):
    """The cached objects of one kind and selector.

    A reflector feeds it, everybody else reads it. Handlers are called in the order in which they were added, once for
    each change, in the server's order. If one raises, that is reported and the others are still called.

    It is `available` while the server answers, and `absent` if the server does not serve the kind: a single 404 is
    proof only as long as no list was cached. While it is neither, the server refuses us, or has only begun to say 404.
    What is `refused` is so until a stream is open, whatever is listed: without a watch the cache grows old again.
    """

    def __init__(
        self,
        kind: Kind[T],
        selector: Selector,
        *,
        clock: Clock,
        metrics: Metrics | None = None,
        optional: bool = False,
    ) -> None:
        self.kind = kind
        self.selector = selector
        self.optional = optional
        self.available = True
        self.unavailable_reason = ""
        self.absent = False
        self.resource_version = 0
        self._store: Store[T] = Store(kind)
        self._handlers: list[Handler[T]] = []
        self._replays: list[Replay[T]] = []
        self._clock = clock
        self._milestones = Milestones()
        self._pace = Pace()
        self._synced = anyio.Event()
        self._settled = anyio.Event()
        self._heard_at = self._tried_at = clock.monotonic()
        self._refusals: tuple[float, float] | None = None
        self._lists = self._changes = self._handler_errors = 0
        self._metrics = metrics.for_resource(kind.resource) if metrics else None

    def __repr__(self) -> str:
        state = "synced" if self.synced else "syncing" if self.available else "unavailable"
        return f"<Informer {self.kind.resource} {state} objects={len(self._store)} version={self.resource_version}>"

    @property
    def reader(self) -> StoreReader[T]:
        return self._store

    @property
    def synced(self) -> bool:
        """True once a complete list has been cached. Stays true, however old the cache may get."""
        return self._synced.is_set()

    @property
    def settled(self) -> bool:
        """True once the first list is cached, or the server has answered that it does not serve one."""
        return self._settled.is_set()

    @property
    def follows(self) -> bool:
        """True if the cache will see a write sooner or later: it holds a list of the kind, or is about to.

        A refusal alone does not change that, because an administrator may end it. Until then the cache is stale.
        """
        return self.available or (self.synced and not self.absent)

    def age(self) -> float:
        """Returns the seconds since the last good answer on this watch: objects, a bookmark, an open stream.

        For an optional kind, the answer that it is not served counts as good too.
        """
        return self._clock.monotonic() - self._heard_at

    @property
    def is_refused(self) -> bool:
        """True from a refusal until a stream is open."""
        return self._refusals is not None

    def refused(self) -> float:
        """Returns the seconds from the first to the last refusal since a stream was open; 0 after less than two.

        A server that was away between two of them begins a new row, so that no outage counts as a right that lacks.
        """
        first, last = self._refusals or (0.0, 0.0)
        return last - first

    def idle(self) -> float:
        """Returns the seconds since the last attempt on this watch, even a failed one. Does not grow in an outage.

        Liveness uses this one instead of `age`: a restart repairs a stuck watch, not an API server that is down.
        """
        return self._clock.monotonic() - self._tried_at

    def heard(self) -> None:
        """Notes that the server gave a good answer."""
        self._heard_at = self._tried_at = self._clock.monotonic()

    def tried(self) -> None:
        """Notes that an attempt to reach the server failed or was refused."""
        self._tried_at = self._clock.monotonic()

    def stats(self) -> InformerStatistics:
        return InformerStatistics(
            resource=self.kind.resource,
            selector=str(self.selector),
            objects=len(self._store),
            undecodable=len(self._store.undecodable),
            resource_version=self.resource_version,
            synced=self.synced,
            available=self.available,
            age_s=self.age(),
            lists=self._lists,
            changes=self._changes,
            handler_errors=self._handler_errors,
        )

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Adds a named index; it covers what is cached already. A name that exists stays as it is."""
        self._store.add_index(name, function)

    def add_handler(self, handler: Handler[T]) -> None:
        """Adds a handler: replays all cached objects to it as `added`, then tells it of every change."""
        for obj in self._store:
            self._tell(handler, Change(self.kind, "added", None, obj, initial=True))
        self._handlers.append(handler)

    async def attach(self, handler: Handler[T]) -> None:
        """Adds a handler as `add_handler` does, and lets other tasks run during the replay.

        Changes meanwhile reach the handler in order: an object that was not replayed yet is, before its change.
        """
        replay = Replay(self.kind, (*self._store,), partial(self._tell, handler))
        self._replays.append(replay)
        self._handlers.append(handler)
        pace = Pace()
        try:
            for _ in replay.steps():
                await pace.step()
        finally:
            self._replays.remove(replay)

    def remove_handler(self, handler: Handler[T]) -> None:
        """Removes a handler. Raises ValueError if it was never added."""
        self._handlers.remove(handler)

    # Waiting.

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def wait_settled(self) -> None:
        await self._settled.wait()

    async def wait_version(self, version: int) -> None:
        """Waits until the cache has reached `version` and its handlers have been told."""
        if self.resource_version < version:
            await self._milestones.version(version)

    async def wait_gone(self, key: Key, uid: str) -> None:
        """Waits until the cache shows that the object with that uid is gone or being deleted."""
        while self.has(key, uid):
            await self._milestones.change(key)

    def has(self, key: Key, uid: str) -> bool:
        """Tells if the object with that uid is cached and not being deleted."""
        obj = self._store.get(key)
        return obj is not None and uid in ("", obj.metadata.uid) and obj.metadata.deletion_timestamp is None

    # Being fed.

    async def feed(self, event: StoreEvent[T]) -> None:
        """Applies an event of the watch to the store, then tells the handlers, then wakes waiting tasks.

        Only an optional kind may disappear. If the server no longer finds a required kind, that is a fault, and its
        objects are kept until a list shows that they are gone.
        """
        if isinstance(event, Absent) and not self.optional:
            return
        for change in self._store.steps(event):
            if change is not None:
                self._publish(change)
            await self._pace.step()
        self._note(event)

    def _publish(self, change: Change[T]) -> None:
        self._changes += 1
        for replay in (*self._replays,):
            replay.overtake(change)
        for handler in (*self._handlers,):
            self._tell(handler, change)
        self._milestones.changed(change.key)

    def _note(self, event: StoreEvent[T]) -> None:
        match event:
            case Applied(obj) | Removed(obj):
                if not self._store.is_listing:
                    self._reach(obj.metadata.resource_version)
            case Bookmarked(version):
                self._reach(version)
            case Init():
                self._lists += 1
                if self._metrics:
                    self._metrics.relists_total.inc()
            case InitDone():
                self._finish_list(event)
            case Skipped(what):
                self._report(what)
            case Unavailable():
                self._lose(event)
            case Available():
                self._regain()
            case Absent():
                self.absent = True

    def _finish_list(self, event: InitDone) -> None:
        if event.forced:
            log.warning("the API server's versions went back", resource=self.kind.resource)
            self.resource_version = 0
        if not self.synced:
            log.info("cache synced", resource=self.kind.resource, objects=len(self._store))
        self.available, self.absent = True, False
        self._synced.set()
        self._settled.set()
        self._reach(event.resource_version)

    def _lose(self, refusal: Unavailable) -> None:
        if not self.is_refused:
            level = log.info if self.optional else log.warning
            level("resource unavailable", resource=self.kind.resource, reason=refusal.reason)
        now = self._clock.monotonic()
        first, last = self._refusals or (now, now)
        self._refusals = (first if now - last < _ROW_S else now, now)
        self.available, self.unavailable_reason = False, refusal.reason
        if not self.synced:
            # Nothing is forgotten, so the first answer is believed. What was cached is kept until `Absent`.
            self.absent = refusal.missing
        if self.optional and refusal.missing:
            self.heard()
        self._settled.set()

    def _regain(self) -> None:
        if self.is_refused:
            log.info("resource available again", resource=self.kind.resource)
        self._refusals, self.unavailable_reason = None, ""

    def _reach(self, version: str) -> None:
        reached = number(version)
        if reached is not None and reached > self.resource_version:
            self.resource_version = reached
            self._milestones.reached(reached)

    def _tell(self, handler: Handler[T], change: Change[T]) -> None:
        # If a handler fails on one object, the watch must go on and the other handlers must still be called.
        # A handler does not await, so a CancelledError comes from a future that it read, never from our own task.
        try:
            handler.on_event(change)
        except (Exception, CancelledError):
            self._handler_errors += 1
            if self._metrics:
                self._metrics.handler_errors_total.inc()
            log.exception("handler failed", resource=self.kind.resource, key=str(change.key))

    def _report(self, what: Any) -> None:
        log.error("undecodable object skipped", resource=self.kind.resource, key=str(what.key), error=str(what.error))
        if self._metrics:
            self._metrics.undecodable_total.inc()
        if not self._store.is_listing:
            self._reach(what.resource_version)
