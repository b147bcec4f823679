"""From a TorchrunJob's event to its child Job: how long a user's job waits for the operator.

Both ends are seen by this process, on one watch each and by one monotonic clock: the moment at which the line ADDED of
the TorchrunJob is read, and the moment at which the line ADDED of the batch Job of the same name is. What the two
watches themselves take is in both and cancels out. Jobs have no workspace: between the two lie the revision, the
status write that is guarded by resourceVersion, and the headless Service.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from bench.cluster import NAMESPACE, Cluster, cluster, job_body, operator
from bench.figures import Figure, percentile, spread
from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB
from torchctl.runtime.kinds import Kind

__all__ = ["measure"]

JOBS = 200
RATE_PER_S = 2.0
"""Low enough that two busy cores, which the API server and everything else share, keep up: else a queue is measured."""

CONNECTIONS = 32
DEADLINE_S = 180.0
WARM_UP = 5
"""Jobs before the first that counts: the first reconciles import and connect."""


class _Meta(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta


class _Line(msgspec.Struct):
    type: str
    object: _Object


_DECODER = msgspec.json.Decoder(_Line)


class Arrivals:
    """When the line ADDED of each object was read, in the order of arrival."""

    def __init__(self, cluster: Cluster, kind: Kind[Any]) -> None:
        self.at: dict[str, float] = {}
        self._cluster = cluster
        self._kind = kind
        self._news = anyio.Event()

    async def watch(self) -> None:
        version = (await self._cluster.admin.list_page(self._kind, namespace=NAMESPACE)).resource_version
        async with self._cluster.admin.watch(
            self._kind, namespace=NAMESPACE, resource_version=version, timeout_s=2 * DEADLINE_S
        ) as stream:
            while line := await stream.readline(2 * DEADLINE_S):
                now = time.monotonic()
                event = _DECODER.decode(line)
                if event.type == "ADDED":
                    self.at.setdefault(event.object.metadata.name, now)
                    self._news.set()

    async def wait(self, names: Sequence[str]) -> None:
        """Returns once all of them have arrived."""
        with anyio.fail_after(DEADLINE_S):
            while not self.at.keys() >= set(names):
                self._news = anyio.Event()
                await self._news.wait()


async def measure() -> list[Figure]:
    """RBAC and everything else as config/ has it; the operator is a process of its own; nodes are absent."""
    async with cluster() as server, operator(server), anyio.create_task_group() as tasks:
        async with _arrivals(server, tasks) as (jobs, children):
            await _paced(server, children, "warm", WARM_UP, RATE_PER_S)
            began = time.monotonic()
            paced = await _paced(server, children, "paced", JOBS, RATE_PER_S)
            await jobs.wait([*paced])
            took_s = time.monotonic() - began
            figures = _figures(f"at {RATE_PER_S:.0f} jobs/s", jobs, children, paced, took_s)
            began = time.monotonic()
            burst = await _burst(server, children, "burst", JOBS)
            await jobs.wait([*burst])
            took_s = time.monotonic() - began
            figures += _figures("in a burst", jobs, children, burst, took_s)
        tasks.cancel_scope.cancel()
    return figures


@asynccontextmanager
async def _arrivals(server: Cluster, tasks: TaskGroup) -> AsyncGenerator[tuple[Arrivals, Arrivals]]:
    jobs, children = Arrivals(server, TORCHRUN_JOB), Arrivals(server, JOB)
    tasks.start_soon(jobs.watch)
    tasks.start_soon(children.watch)
    await anyio.sleep(0.5)  # both watches are open by then; the jobs of the warm-up prove it
    yield jobs, children


async def _paced(server: Cluster, children: Arrivals, prefix: str, count: int, rate: float) -> dict[str, float]:
    """Creates jobs at a steady rate, whatever becomes of them. Returns when each was sent."""
    sent: dict[str, float] = {}
    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            await anyio.sleep(max(0.0, began + number / rate - time.monotonic()))
            tasks.start_soon(_create, server, f"{prefix}-{number}", sent)
    await children.wait([*sent])
    return sent


async def _burst(server: Cluster, children: Arrivals, prefix: str, count: int) -> dict[str, float]:
    """Creates jobs as fast as the API server takes them."""
    sent: dict[str, float] = {}

    async def create(numbers: range) -> None:
        for number in numbers:
            await _create(server, f"{prefix}-{number}", sent)

    async with anyio.create_task_group() as tasks:
        for first in range(CONNECTIONS):
            tasks.start_soon(create, range(first, count, CONNECTIONS))
    await children.wait([*sent])
    return sent


async def _create(server: Cluster, name: str, sent: dict[str, float]) -> None:
    sent[name] = time.monotonic()
    await server.admin.create(TORCHRUN_JOB, job_body(name))


def _figures(how: str, jobs: Arrivals, children: Arrivals, sent: dict[str, float], took_s: float) -> list[Figure]:
    latencies = [1000 * (children.at[name] - jobs.at[name]) for name in jobs.at if name in sent]
    from_send = [1000 * (children.at[name] - at) for name, at in sent.items()]
    detail = {
        "definition": "line ADDED of the TorchrunJob read -> line ADDED of its batch Job read, one process, one clock",
        "jobs": len(latencies),
        "jobs_per_s": len(latencies) / took_s,
        "ms": spread(latencies),
        "from_request_sent_ms": {"p50": percentile(from_send, 50), "p99": percentile(from_send, 99)},
        "ms_in_order_of_arrival": [round(latency, 1) for latency in latencies],
    }
    return [
        Figure(
            bench="latency",
            name=f"event to child Job, p{rank}, {len(latencies)} jobs {how}",
            value=percentile(latencies, rank),
            unit="ms",
            detail=detail if rank == 50 else {},
        )
        for rank in (50, 99)
    ]
