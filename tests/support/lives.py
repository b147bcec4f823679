"""One operator after another: the first is cut down at a point, and the next knows nothing of it.

The cut is made by a `FaultProxy` in front of the API server; the operator has no hook for it. Nothing of an operator
that was cut down gets through any more: its proxy stays down, and its successor has another one.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus
from operators import RunningOperator
from waiting import until
from writes import Point, Write

from torchctl.runtime.client.config import Connection
from torchctl.runtime.manager import Manager
from torchctl.runtime.reconcile import ResultLabel
from torchctl.testing.faults import Cut, Exchange, is_write
from torchctl.testing.proxy import FaultProxy

__all__ = ["Killable", "Life", "Lives", "Meanwhile", "lives"]

CREATED = 201


class Killable(Protocol):
    """An operator that can be ended on the spot."""

    def kill(self) -> None: ...


Life = Callable[[FaultProxy, str], AbstractAsyncContextManager[Killable]]
"""Runs an operator for one namespace by way of a proxy, until its body ends or it is killed."""

Meanwhile = Callable[[], Awaitable[None]]
"""What happens while there is no operator."""


class Lives:
    """At most one operator at a time, and what they all wrote."""

    def __init__(
        self,
        life: Life,
        namespace: str,
        point: Point | None,
        meanwhile: Meanwhile,
        proxies: Iterable[FaultProxy],
        tasks: TaskGroup,
    ) -> None:
        self._life, self._namespace, self._meanwhile, self._tasks = life, namespace, meanwhile, tasks
        self._proxies = tuple(proxies)
        self._proxy = self._proxies[0]
        self._operator: Killable | None = None
        self._ends, self._ended = anyio.Event(), anyio.Event()
        self._is_stopping = False
        self._cut = self._cut_at(point) if point is not None else None

    @property
    def was_cut(self) -> bool:
        return self._cut is not None and self._cut.exchange is not None

    async def begin(self) -> None:
        await self._tasks.start(self._live, self._proxy)

    async def stop(self) -> None:
        """Ends the operator gracefully; none follows it."""
        self._is_stopping = True
        self._ends.set()
        await self._ended.wait()

    def end(self) -> None:
        """Ends the operator on the spot; none follows it."""
        self._is_stopping = True
        if self._operator is not None:
            with suppress(ProcessLookupError):  # it ended by itself, which shows in what it did not do
                self._operator.kill()
        self._ends.set()

    async def again(self) -> Counter[Write]:
        """Another operator that looks at everything once: returns what it wrote, Events left out."""
        await self.stop()
        before, self._is_stopping = self.writes(), False
        await self.begin()
        await until(self._has_seen_all, timeout_s=60.0)
        return Counter({write: count for write, count in (self.writes() - before).items() if not write.is_event})

    def writes(self) -> Counter[Write]:
        """How often each write was sent."""
        return Counter(Write.of(exchange, self._namespace) for exchange in self._exchanges())

    def created(self) -> Counter[Write]:
        """How often each write brought an object into being."""
        made = (exchange for exchange in self._exchanges() if exchange.status == CREATED)
        return Counter(write for write in (Write.of(e, self._namespace) for e in made) if not write.is_event)

    def _exchanges(self) -> Iterable[Exchange]:
        return (exchange for proxy in self._proxies for exchange in proxy.writes)

    def _cut_at(self, point: Point) -> Cut:
        def match(exchange: Exchange) -> bool:
            return is_write(exchange) and Write.of(exchange, self._namespace) == point.write

        return self._proxy.cut(point.number, point.moment, match=match, then=self._die)

    async def _live(self, proxy: FaultProxy, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        self._ends, self._ended = ends, ended = anyio.Event(), anyio.Event()
        try:
            async with self._life(proxy, self._namespace) as self._operator:
                task_status.started()
                await ends.wait()
        finally:
            ended.set()

    async def _die(self) -> None:
        assert self._operator is not None
        self._operator.kill()
        self._ends.set()
        self._proxy = self._proxies[1]
        await self._meanwhile()
        if not self._is_stopping:
            # At once, while what is left of the dead one fails against a proxy that is down.
            self._tasks.start_soon(self._live, self._proxy)

    async def _has_seen_all(self) -> bool:
        return isinstance(self._operator, RunningOperator) and _is_idle(self._operator.manager)


def _is_idle(manager: Manager) -> bool:
    """Whether each controller has reconciled, and nothing is due."""
    queues = manager.statistics()
    busy = any(queue.due or queue.processing for queue in queues.values())
    return len(queues) > 0 and not busy and all(_reconciles(manager, name) for name in queues)


def _reconciles(manager: Manager, controller: str) -> float:
    labels = ({"controller": controller, "result": result} for result in ResultLabel)
    read = manager.metrics.registry.get_sample_value
    return sum(read("controller_runtime_reconcile_total", each) or 0 for each in labels)


@asynccontextmanager
async def lives(
    life: Life, upstream: Connection, namespace: str, point: Point | None, meanwhile: Meanwhile
) -> AsyncIterator[Lives]:
    """Operators for one namespace, all of them gone in the end; none runs before `begin`."""
    async with FaultProxy(upstream) as first, FaultProxy(upstream) as second, anyio.create_task_group() as tasks:
        operators = Lives(life, namespace, point, meanwhile, (first, second), tasks)
        try:
            yield operators
        finally:
            operators.end()
