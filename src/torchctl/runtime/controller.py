"""Declares controllers: a name, a reconciler, and the kinds whose changes lead to a reconcile.

    Controller("fleet", reconcile).for_(FLEET).owns(POD).watches(NODE, fleets_on_node)

declares one. `Manager.add` registers its kinds with the cache, `Manager.run` runs it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

from torchctl.runtime.handler import Mapper, map_to_controller, map_to_self
from torchctl.runtime.kinds import Kind
from torchctl.runtime.predicate import ALWAYS, Predicate
from torchctl.runtime.reconcile import Reconciler, Request
from torchctl.runtime.workqueue.ratelimit import MAX_DELAY_S, ExponentialLimiter, RateLimiter

__all__ = ["Controller", "Enqueue", "ExternalSource", "Source"]


class Enqueue(Protocol):
    """Puts a key into a controller's queue. Never blocks."""

    def __call__(self, request: Request, /, *, priority: int = 0, delay_s: float = 0.0) -> None:
        """Makes the key due after `delay_s` seconds. Higher priorities go first; `LOW_PRIORITY` is for backlogs."""
        ...


ExternalSource = Callable[[Enqueue], Awaitable[None]]
"""Turns changes outside of the cluster into keys. It runs while the controller works, and may return."""


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
        fields: Field selector of the watch; empty for all.
        namespace: The only namespace to watch; empty for those of the manager.
    """

    kind: Kind[Any]
    mapper: Mapper
    predicate: Predicate = ALWAYS
    labels: str = ""
    optional: bool = False
    delay_s: float = 0.0
    fields: str = ""
    namespace: str = ""

    @property
    def selection(self) -> dict[str, Any]:
        """The arguments that register this source with a cache."""
        return {
            "labels": self.labels,
            "fields": self.fields,
            "namespace": self.namespace,
            "optional": self.optional,
        }


class Controller:
    """The declaration of a controller.

    Args:
        name: Unique within a manager; the value of the label `controller` in metrics and logs.
        reconcile: Called with one key at a time; never twice at once for the same key.
        workers: The number of keys that are reconciled at once. None: as the manager's settings say.
        timeout_s: A reconcile that takes longer is cancelled and retried. None: as the manager's settings say.
        max_retry_s: The longest delay between retries of a key that keeps failing.
        limiter: Makes the rate limiter of a term of leadership. None: exponential by key, from 5 ms to `max_retry_s`.
        resync_s: Seconds within which each object of `for_` is reconciled once although nothing changed, evenly spread.
            0: never. None: as the manager's settings say.
        leader_elected: Only the leader runs it. If not, each replica does, and it has to write through
            `manager.client.unfenced()` or `manager.applier.unfenced()`.
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
        resync_s: float | None = None,
        leader_elected: bool = True,
    ) -> None:
        self.name = name
        self.reconcile = reconcile
        self.workers = workers
        self.timeout_s = timeout_s
        self.limiter = limiter or partial(ExponentialLimiter[Request], cap_s=max_retry_s)
        self.resync_s = resync_s
        self.leader_elected = leader_elected
        self.sources: list[Source] = []
        self.external: list[ExternalSource] = []

    def __repr__(self) -> str:
        return f"<Controller {self.name} of {', '.join(source.kind.kind for source in self.sources)}>"

    def for_(
        self,
        kind: Kind[Any],
        *,
        predicate: Predicate = ALWAYS,
        labels: str = "",
        fields: str = "",
        namespace: str = "",
    ) -> Self:
        """Declares the kind that is reconciled. Call it once, and first. Selectors are applied by the server."""
        if self.sources:
            raise ValueError(f"controller {self.name}: for_() is declared once, and before owns() and watches()")
        return self._watch(Source(kind, map_to_self, predicate, labels, fields=fields, namespace=namespace))

    def owns(
        self,
        kind: Kind[Any],
        *,
        predicate: Predicate = ALWAYS,
        labels: str = "",
        fields: str = "",
        namespace: str = "",
        optional: bool = False,
    ) -> Self:
        """Declares a kind whose objects are owned (`controller: true`) by the reconciled object."""
        if not self.sources:
            raise ValueError(f"controller {self.name}: owns() needs for_() first")
        mapper = map_to_controller(self.sources[0].kind)
        return self._watch(Source(kind, mapper, predicate, labels, optional, fields=fields, namespace=namespace))

    def watches(
        self,
        kind: Kind[Any],
        mapper: Mapper,
        *,
        predicate: Predicate = ALWAYS,
        labels: str = "",
        fields: str = "",
        namespace: str = "",
        optional: bool = False,
        delay_s: float = 0.0,
    ) -> Self:
        """Declares any other kind that the reconciler reads, with a mapper from its objects to the keys to reconcile.

        Use `delay_s` for objects that are only counted: one reconcile within that time serves any number of changes.
        """
        return self._watch(Source(kind, mapper, predicate, labels, optional, delay_s, fields, namespace))

    def listens(self, source: ExternalSource) -> Self:
        """Declares a source outside of the cluster: `await source(enqueue)` runs while the controller works."""
        self.external.append(source)
        return self

    def _watch(self, source: Source) -> Self:
        self.sources.append(source)
        return self
