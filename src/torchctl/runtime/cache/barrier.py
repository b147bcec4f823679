"""Read your own writes: a reconcile waits until the cache has seen what the one before it wrote."""

from collections.abc import Hashable, Iterable

import anyio
import structlog

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Informer
from torchctl.runtime.client.writes import Deleted, Written
from torchctl.runtime.clock import Clock
from torchctl.runtime.kinds import Object
from torchctl.runtime.metrics import ControllerMetrics
from torchctl.runtime.watch.core import number

__all__ = ["Barrier"]

log = structlog.get_logger(__name__)

Write = Written | Deleted

SWEPT_FROM = 64
"""The number of keys from which those whose writes are seen are looked for."""


class Barrier:
    """Remembers writes by the key that made them, and waits until the informers have seen them.

    Each controller has its own, because equal keys of two controllers may mean different objects. It outlives terms of
    leadership, because the next term must not begin on a cache that lacks the writes of the last one.

    Writes of resources that are not cached are not waited for, nor are informers whose selector the written object does
    not match. (A field selector is known to match only by the object's name.) A delete is seen when the object is gone
    or carries a deletionTimestamp. After `timeout_s` the reconcile runs on the stale cache. That is safe, because every
    write is guarded by uid or resourceVersion.
    """

    def __init__(
        self, cache: Cache, *, clock: Clock, timeout_s: float, metrics: ControllerMetrics | None = None
    ) -> None:
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._pending: dict[Hashable, list[Write]] = {}
        self._sweep_at = SWEPT_FROM

    def __repr__(self) -> str:
        return f"<Barrier keys={len(self._pending)}>"

    def note(self, key: Hashable, writes: Iterable[Write]) -> None:
        """Remembers what the reconcile of `key` wrote, unless the cache has seen all of it already."""
        noted = (*writes,)
        if any(map(self._lacks, noted)):
            self._pending.setdefault(key, []).extend(noted)
            self._sweep()

    async def wait(self, key: Hashable) -> bool:
        """Waits until the cache has seen the writes noted for `key`.

        Returns:
            False if that took longer than the timeout.
        """
        writes = self._pending.get(key)
        if not writes:
            return True
        caught_up = await self.catch_up(writes)
        self._pending.pop(key, None)
        return caught_up

    async def catch_up(self, writes: Iterable[Write]) -> bool:
        """Waits until the cache has seen these writes. Returns False if that took longer than the timeout."""
        writes = (*writes,)
        began = self._clock.monotonic()
        with anyio.move_on_after(self._timeout_s) as scope:
            for write in writes:
                await self._see(write)
        self._measure(self._clock.monotonic() - began, gave_up=scope.cancelled_caught)
        if scope.cancelled_caught:
            log.warning("the cache is behind our own writes", waiting_for=str(next(filter(self._lacks, writes), "")))
        return not scope.cancelled_caught

    def _sweep(self) -> None:
        """Forgets keys whose writes are seen, once there are many: a key may never be reconciled again."""
        if len(self._pending) < self._sweep_at:
            return
        self._pending = {key: writes for key, writes in self._pending.items() if any(map(self._lacks, writes))}
        self._sweep_at = max(SWEPT_FROM, 2 * len(self._pending))

    async def _see(self, write: Write) -> None:
        for informer in self._informers(write):
            match write:
                case Written():
                    await informer.wait_version(number(write.resource_version) or 0)
                case Deleted():
                    await informer.wait_gone(write.key, write.uid)

    def _lacks(self, write: Write) -> bool:
        return not self._is_seen(write)

    def _is_seen(self, write: Write) -> bool:
        for informer in self._informers(write):
            match write:
                case Written():
                    if informer.resource_version < (number(write.resource_version) or 0):
                        return False
                case Deleted():
                    if informer.has(write.key, write.uid):
                        return False
        return True

    def _informers(self, write: Write) -> list[Informer[Object]]:
        """Returns the informers that will see the write: they show the object now, or did before the write."""
        labels = write.labels if isinstance(write, Written) else {}
        return [
            informer
            for informer in self._cache.informers(write.kind)
            if informer.follows
            and (informer.reader.get(write.key) is not None or informer.selector.may_show(write.key, labels))
        ]

    def _measure(self, seconds: float, *, gave_up: bool) -> None:
        if self._metrics:
            self._metrics.barrier_wait_seconds.observe(seconds)
            self._metrics.barrier_timeouts_total.inc(gave_up)
