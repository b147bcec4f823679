"""Follows objects as they change: a watch that mends lost connections, read as one state after the other."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Generic, Self, TypeVar

import structlog
from structlog.typing import FilteringBoundLogger

from torchctl.client.cluster import Cluster
from torchctl.client.errors import ClusterError, NotAllowed, NotInstalled
from torchctl.runtime.cancellation import cancel
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.kinds import Key, Kind, Object, key_of
from torchctl.runtime.watch.events import Applied, Init, InitDone, Removed, StoreEvent, Unavailable
from torchctl.runtime.watch.reflector import Reflector
from torchctl.runtime.watch.selector import Selector

__all__ = ["Objects", "States", "states"]

T = TypeVar("T", bound=Object)
LOG: FilteringBoundLogger = structlog.wrap_logger(
    logging.getLogger("torchctl.client"),
    processors=[structlog.stdlib.render_to_log_kwargs],
    wrapper_class=structlog.stdlib.BoundLogger,
)
"""A logger of the standard library: a program that configures no logs sees nothing but warnings."""
Objects = dict[Key, T]


class States(Generic[T]):
    """All objects that match, as an asynchronous iterator: the complete list first, then a state after each change.

    A reader that is slow gets the newest state, without those between. It is the sink of one watch.
    """

    def __init__(self, kind: Kind[T], selector: Selector) -> None:
        self.kind = kind
        self.selector = selector
        self._objects: Objects[T] = {}
        self._listed: Objects[T] | None = {}
        self._refusal: ClusterError | None = None
        self._changed = asyncio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Objects[T]:
        """Waits for a change.

        Raises:
            NotAllowed, NotInstalled: The server refuses the watch.
        """
        await self._changed.wait()
        self._changed.clear()
        if self._refusal is not None:
            raise self._refusal
        return dict(self._objects)

    async def feed(self, event: StoreEvent[T]) -> None:
        """Takes one event of the watch. While a list comes in, nothing of it is seen."""
        match event:
            case Init():
                self._listed = {}
            case InitDone():
                self._objects, self._listed = self._listed or {}, None
            case Applied(obj):
                self._target[key_of(obj)] = obj
            case Removed(obj):
                self._target.pop(key_of(obj), None)
            case Unavailable(reason, missing):
                self._refusal = _refusal(self.kind, reason, missing)
        if self._listed is None or self._refusal is not None:
            self._changed.set()

    def heard(self) -> None:
        """Nothing: nobody asks how old the state is."""

    def tried(self) -> None:
        """Nothing, see `heard`."""

    @property
    def _target(self) -> Objects[T]:
        return self._objects if self._listed is None else self._listed


@asynccontextmanager
async def states(
    cluster: Cluster, kind: Kind[T], *, namespace: str = "", labels: str = "", name: str = ""
) -> AsyncGenerator[States[T]]:
    """Watches objects for the length of the block. RBAC: list and watch on the kind.

    Args:
        cluster: Where.
        kind: The kind to watch.
        namespace: Empty for all.
        labels: Label selector.
        name: Only the object of this name.
    """
    found = States(kind, Selector(namespace, labels, f"metadata.name={name}" if name else ""))
    reflector = Reflector(cluster.client, found, clock=SystemClock(), rng=random.Random(), log=LOG)
    watch = asyncio.create_task(reflector.run())
    try:
        yield found
    finally:
        await cancel([watch])


def _refusal(kind: Kind[T], reason: str, missing: bool) -> ClusterError:
    if missing:
        return NotInstalled(f"the cluster does not know {kind.resource}", "Ask who runs it to install torchctl.")
    return NotAllowed(f"the API server refuses to show {kind.resource}: {reason}", "Ask who runs it for the role view.")
