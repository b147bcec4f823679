"""Declares controllers: a name, a reconciler, and the kinds whose changes lead to a reconcile.

    Controller("fleet", reconcile).for_(FLEET).owns(POD).watches(NODE, fleets_on_node)

declares one. `Manager.add` registers its kinds with the cache, `Manager.run` runs it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from torchctl.runtime.handler import Mapper, map_to_controller, map_to_self
from torchctl.runtime.kinds import Kind
from torchctl.runtime.predicate import ALWAYS, Predicate
from torchctl.runtime.reconcile import Reconciler, Request
from torchctl.runtime.workqueue.ratelimit import MAX_DELAY_S, ExponentialLimiter, RateLimiter

__all__ = ["Controller", "Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """A watched kind and the function that maps its changes to keys.

    Attributes:
        kind: The kind that is watched.
        mapper: Maps an object to the keys to reconcile.
        predicate: Selects the changes that count.
        labels: Label selector of the watch; empty for all.
        optional: The kind may be missing in the cluster; the controller starts without it and sees its
            objects once it is installed.
        delay_s: Seconds from a change to its reconcile. All changes within that time share one reconcile.
    """

    kind: Kind[Any]
    mapper: Mapper
    predicate: Predicate = ALWAYS
    labels: str = ""
    optional: bool = False
    delay_s: float = 0.0


class Controller:
    """The declaration of a controller.

    Args:
        name: Unique within a manager; the value of the label `controller` in metrics and logs.
        reconcile: Called with one key at a time; never twice at once for the same key.
        workers: The number of keys that are reconciled at once. None: as the manager's settings say.
        timeout_s: A reconcile that takes longer is cancelled and retried. None: as the manager's settings say.
        max_retry_s: The longest delay between retries of a key that keeps failing.
        limiter: Makes the rate limiter of a term of leadership. None: exponential by key, from 5 ms to `max_retry_s`.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconciler,
        *,
        workers: int | None = None,
        timeout_s: float | None = None,
        max_retry_s: float = MAX_DELAY_S,
        limiter: Callable[[], RateLimiter[Request]] | None = None,
    ) -> None:
        self.name = name
        self.reconcile = reconcile
        self.workers = workers
        self.timeout_s = timeout_s
        self.limiter = limiter or partial(ExponentialLimiter[Request], cap_s=max_retry_s)
        self.sources: list[Source] = []

    def __repr__(self) -> str:
        return f"<Controller {self.name} of {', '.join(source.kind.kind for source in self.sources)}>"

    def for_(self, kind: Kind[Any], *, predicate: Predicate = ALWAYS, labels: str = "") -> Self:
        """Declares the kind that is reconciled. Call it once, and first."""
        if self.sources:
            raise ValueError(f"controller {self.name}: for_() is declared once, and before owns() and watches()")
        return self._watch(Source(kind, map_to_self, predicate, labels))

    def owns(self, kind: Kind[Any], *, predicate: Predicate = ALWAYS, labels: str = "", optional: bool = False) -> Self:
        """Declares a kind whose objects are owned (`controller: true`) by the reconciled object."""
        if not self.sources:
            raise ValueError(f"controller {self.name}: owns() needs for_() first")
        mapper = map_to_controller(self.sources[0].kind)
        return self._watch(Source(kind, mapper, predicate, labels, optional))

    def watches(
        self,
        kind: Kind[Any],
        mapper: Mapper,
        *,
        predicate: Predicate = ALWAYS,
        labels: str = "",
        optional: bool = False,
        delay_s: float = 0.0,
    ) -> Self:
        """Declares any other kind that the reconciler reads, with a mapper from its objects to the keys to reconcile.

        Use `delay_s` for objects that are only counted: one reconcile within that time serves any number of changes.
        """
        return self._watch(Source(kind, mapper, predicate, labels, optional, delay_s))

    def _watch(self, source: Source) -> Self:
        self.sources.append(source)
        return self
