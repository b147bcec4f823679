"""The informers of one process: registered once, shared by all controllers, run together."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus

from torchctl.runtime.cache.gauges import Gauges
from torchctl.runtime.cache.index import IndexFunction
from torchctl.runtime.cache.informer import Informer
from torchctl.runtime.client.client import Client
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.kinds import Key, Kind, Object, key_of
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.watch.core import number
from torchctl.runtime.watch.reflector import Reflector
from torchctl.runtime.watch.selector import Selector
from torchctl.runtime.watch.settings import WatchSettings

__all__ = ["Cache", "NotRegistered", "NotSynced"]

T = TypeVar("T", bound=Object)


class NotRegistered(LookupError):
    """The kind or index that is read was never registered. The author of the controller can fix that."""


class NotSynced(Exception):
    """The first list of some kinds did not come in time. The message names them and the cause, if it is known."""


class Cache:
    """Typed reads from memory, kept up to date by one watch per kind and selector.

    A kind is registered before it is read: a read never starts a watch by surprise. Registering is idempotent and
    may happen while the cache runs. If a kind is registered with several selectors, reads find the objects
    of all of them. RBAC: list and watch on each registered kind.
    """

    def __init__(
        self,
        client: Client,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        settings: WatchSettings | None = None,
        namespace: str = "",
    ) -> None:
        self._client = client
        self._namespaces = tuple(filter(None, (name.strip() for name in namespace.split(",")))) or ("",)
        self._metrics = metrics
        self._gauges = Gauges(metrics) if metrics else None
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._settings = settings or WatchSettings()
        self._informers: dict[Kind[Any], dict[Selector, Informer[Any]]] = {}
        self._indexes: dict[Kind[Any], dict[str, IndexFunction]] = {}
        self._tasks: TaskGroup | None = None

    def __repr__(self) -> str:
        return f"<Cache {[*self.all()]}>"

    def register(
        self,
        kind: Kind[T],
        *,
        labels: str = "",
        fields: str = "",
        namespace: str = "",
        indexes: Mapping[str, IndexFunction] | None = None,
        optional: bool = False,
    ) -> Informer[T]:
        """Returns the informer of a kind and selector; makes it, and starts it if the cache runs, on the first call.

        If the cache watches several namespaces, there is an informer for each, and this returns the first one's.

        Args:
            kind: The kind to cache.
            labels: Label selector, applied by the server.
            fields: Field selector, applied by the server.
            namespace: The only namespace to watch; empty for the cache's own, which may be several, or all.
            indexes: Named index functions, added as by `index`: they cover the kind, whatever its selectors.
            optional: Readiness does not wait for the kind while the server does not serve it. If any call registers
                the kind as required, it is required.
        """
        return self.register_all(
            kind, labels=labels, fields=fields, namespace=namespace, indexes=indexes, optional=optional
        )[0]

    def register_all(
        self,
        kind: Kind[T],
        *,
        labels: str = "",
        fields: str = "",
        namespace: str = "",
        indexes: Mapping[str, IndexFunction] | None = None,
        optional: bool = False,
    ) -> Sequence[Informer[T]]:
        """Like `register`, but returns the informers of all the cache's namespaces."""
        namespaces = ((namespace,) if namespace else self._namespaces) if kind.namespaced else ("",)
        selectors = [Selector(namespace=one, labels=labels, fields=fields) for one in namespaces]
        found = [self._informer_of(kind, selector, optional) for selector in selectors]
        for name, function in (indexes or {}).items():
            self.index(kind, name, function)
        return found

    def _informer_of(self, kind: Kind[T], selector: Selector, optional: bool) -> Informer[T]:
        informers = self._informers.setdefault(kind, {})
        informer: Informer[T] | None = informers.get(selector)
        if informer is None:
            informer = Informer(kind, selector, clock=self._clock, metrics=self._metrics, optional=optional)
            informers[selector] = informer
            for name, function in self._indexes.get(kind, {}).items():
                informer.add_index(name, function)
            if self._gauges:
                self._gauges.add(informer)
            self._start(informer)
        informer.optional = informer.optional and optional
        return informer

    def index(self, kind: Kind[T], name: str, function: IndexFunction) -> None:
        """Adds a named index to a kind, whatever its selectors, now or later. A name that exists stays as it is.

        It opens no watch: use it, and not `register`, for a kind that somebody else registers with a selector.
        """
        self._indexes.setdefault(kind, {}).setdefault(name, function)
        for informer in self._informers.get(kind, {}).values():
            informer.add_index(name, function)

    # Reading.

    def informers(self, kind: Kind[Any]) -> Iterator[Informer[Any]]:
        """Returns the informers of a resource (group and plural), whatever types they decode it to."""
        resource = (kind.group, kind.plural)
        for known, informers in self._informers.items():
            if (known.group, known.plural) == resource:
                yield from informers.values()

    def informer(self, kind: Kind[T]) -> Informer[T]:
        """Returns the informer of a kind; if there are several, the one registered first.

        Raises:
            NotRegistered: The kind is not registered.
        """
        for informer in self._registered(kind):
            return informer
        raise NotRegistered(kind.resource)

    def get(self, kind: Kind[T], key: Key) -> T | None:
        """Returns the cached object, None if there is none.

        Raises:
            NotRegistered: The kind is not registered.
        """
        found = [obj for informer in self._registered(kind) if (obj := informer.reader.get(key)) is not None]
        return _newest(found) if found else None

    def list(self, kind: Kind[T], namespace: str | None = None) -> tuple[T, ...]:
        """Returns the cached objects of a kind, of all namespaces or of one, in no particular order.

        Raises:
            NotRegistered: The kind is not registered.
        """
        return _merge([informer.reader.list(namespace) for informer in self._registered(kind)])

    def by_index(self, kind: Kind[T], index: str, value: str) -> tuple[T, ...]:
        """Returns the cached objects that have `value` in the index `index`.

        Raises:
            NotRegistered: The kind is not registered, or not with that index.
        """
        if index not in self._indexes.get(kind, ()):
            raise NotRegistered(f"index {index} of {kind.resource}")
        return _merge([informer.reader.by_index(index, value) for informer in self._registered(kind)])

    def all(self) -> Iterable[Informer[Any]]:
        for informers in self._informers.values():
            yield from informers.values()

    def _registered(self, kind: Kind[T]) -> Iterable[Informer[T]]:
        try:
            return self._informers[kind].values()
        except KeyError:
            raise NotRegistered(kind.resource) from None

    # Running.

    @property
    def synced(self) -> bool:
        """True once every kind is cached, except optional ones that the server does not serve."""
        return all(_is_ready(informer) for informer in self.all())

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keeps all informers up to date until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                for informer in self.all():
                    self._start(informer)
                task_status.started()
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    async def wait_synced(self, timeout_s: float = 120.0) -> None:
        """Waits until `synced`.

        Raises:
            NotSynced: That took longer than `timeout_s`. The watches go on trying.
        """
        with anyio.move_on_after(timeout_s) as scope:
            for informer in [*self.all()]:
                await (informer.wait_settled() if informer.optional else informer.wait_synced())
        if scope.cancelled_caught and not self.synced:
            late = [informer for informer in self.all() if not _is_ready(informer)]
            raise NotSynced("; ".join(_describe(informer) for informer in late))

    def _start(self, informer: Informer[Any]) -> None:
        if self._tasks is not None:
            reflector = Reflector(self._client, informer, self._settings, clock=self._clock, rng=self._rng)
            self._tasks.start_soon(reflector.run, name=f"watch {informer.kind.resource} {informer.selector}")


def _is_ready(informer: Informer[Any]) -> bool:
    return informer.settled if informer.optional else informer.synced


def _describe(informer: Informer[Any]) -> str:
    reason = informer.unavailable_reason or "no complete list yet"
    return f"{informer.kind.resource}: {reason}"


def _merge(parts: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    if len(parts) == 1:
        return parts[0]
    forms: dict[Key, list[T]] = {}
    for obj in chain(*parts):
        forms.setdefault(key_of(obj), []).append(obj)
    return (*map(_newest, forms.values()),)


def _newest(forms: Sequence[T]) -> T:
    """Returns the object with the highest version among the copies that several informers hold."""
    return max(forms, key=lambda obj: number(obj.metadata.resource_version) or 0)
