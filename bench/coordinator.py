"""CPU time of a decision of the coordinator: 10,000 gangs that wait, 2,000 nodes, 50 queues.

With it, the time to make its state from the caches and records of what it decides, how long the event loop stops, and
the memory that decisions take.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio

from bench.figures import Figure, spread
from bench.observed import observed
from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.deciding import Deciding
from torchctl.controllers.coordinator.plan import state_of
from torchctl.controllers.coordinator.readings import Readings
from torchctl.controllers.coordinator.records import records
from torchctl.controllers.coordinator.values import (
    Demand,
    Holding,
    Limits,
    NodeInfo,
    PodShape,
    Preemption,
    Queue,
    Requirement,
    Start,
    State,
    Toleration,
    Turn,
    Waiting,
)
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.memory import relax, settle

__all__ = ["cluster", "measure"]

GPU = "nvidia.com/gpu"
NODES, QUEUES, WAITING, ROUNDS = 2000, 50, 10_000, 15
GOAL_MS, GOAL_STOP_MS = 50.0, 20.0
GOAL_PEAK_MIB, GOAL_KEPT_MIB, GOAL_RSS_MIB = 20.0, 10.0, 150.0
MIB = 2**20
STOPS = 5
NOW_S = 1_000_000.0
POOLS = ("a100", "h100", "l4")
SIZES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8), (16, 8), (64, 8))
"""Pods and GPUs of each, small ones more often (as WEIGHTS says)."""

WEIGHTS = (40, 12, 12, 14, 8, 6, 4, 3, 1)
GIB = 2**30


async def measure() -> list[Figure]:
    """Times decisions in a cluster that is full, and in one with some nodes free."""
    relax()  # as the operator does: garbage of a decision is collected as rarely as there
    full, free = cluster(busy=1.0), cluster(busy=0.9)
    settle()
    return [
        _decision("full cluster", full),
        _decision("a tenth of the nodes free", free),
        _decision("full cluster, reclaim", reclaiming(full)),
        _decision("full cluster, 3000 shapes that never fit", never_fitting(full, 3000)),
        *_around(full),
        await _stop(full),
        *await _memory(),
    ]


def reclaiming(state: State) -> State:
    """Returns the cluster with queues that preempt within their cohort."""
    return replace(state, queues=tuple(replace(queue, preemption=Preemption.RECLAIM) for queue in state.queues))


def never_fitting(state: State, count: int) -> State:
    """Returns the cluster with so many gangs that wait with pods too large for any node, no two alike."""
    odd = (
        replace(gang, shape=replace(gang.shape, requests=((GPU, 9 + at),)))
        for at, gang in enumerate(state.waiting[:count])
    )
    return replace(state, waiting=(*odd, *state.waiting[count:]))


def _decision(name: str, state: State) -> Figure:
    decision = decide(state)
    more = {"let_in": len(decision.let_in), "reserved": len(decision.reserved)}
    return _timed(f"decision, {name}", lambda: decide(state), **more)


def _around(state: State) -> Iterator[Figure]:
    """Times what comes before a decision and after it, when nothing has changed since the last one."""
    seen, now, readings = observed(state), datetime.fromtimestamp(NOW_S, UTC), Readings()
    settings = CoordinatorSettings()
    decision = decide(state_of(seen, settings, now, readings))
    yield _timed("state from the caches", lambda: state_of(seen, settings, now, readings), pods=len(seen.pods))
    yield _timed("records of a decision", lambda: records(decision, seen.jobs, now, settings, words=True))


async def _stop(state: State) -> Figure:
    """Measures for how long the event loop stands still while a thread decides, in CPU time of this process."""
    seen, now = observed(state), datetime.fromtimestamp(NOW_S, UTC)
    deciding, loop, stops = Deciding(CoordinatorSettings()), asyncio.get_running_loop(), [0.0]

    async def tick() -> None:
        while True:
            began = time.process_time()
            await asyncio.sleep(0.001)
            stops[-1] = max(stops[-1], (time.process_time() - began) * 1000)

    ticking = asyncio.create_task(tick())
    for _ in range(STOPS):
        stops.append(0.0)
        await loop.run_in_executor(None, partial(deciding.decide, seen, now, words=True))
    ticking.cancel()
    found = spread(stops[1:])
    return Figure(
        bench="coordinator",
        name="longest stop of the event loop",
        value=found["median"],
        unit="ms",
        goal=GOAL_STOP_MS,
        detail={"times": found, "waiting": WAITING, "nodes": NODES, "queues": QUEUES},
    )


async def _memory() -> list[Figure]:
    """Measures decisions on the full cluster in processes of their own, which hold the objects of the caches too."""
    traced, whole = [await _bytes(way) for way in ("tracemalloc", "rss")]
    found = (
        ("most memory of decisions, by tracemalloc", traced["peak"], GOAL_PEAK_MIB, traced),
        ("memory kept between decisions, by tracemalloc", traced["kept"], GOAL_KEPT_MIB, traced),
        ("most RSS of the process, objects included", whole["peak"], GOAL_RSS_MIB, whole),
    )
    return [
        Figure(
            bench="coordinator",
            name=name,
            value=value / MIB,
            unit="MiB",
            goal=goal,
            detail={"bytes": detail, "waiting": WAITING, "nodes": NODES, "queues": QUEUES},
        )
        for name, value, goal, detail in found
    ]


async def _bytes(way: str) -> dict[str, Any]:
    done = await anyio.run_process([sys.executable, "-m", "bench.deciding", way], stderr=None)
    return dict(json.loads(done.stdout))


def _timed(name: str, run: Callable[[], object], **more: int) -> Figure:
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        run()
        times.append((time.process_time() - began) * 1000)
    found = spread(times)
    return Figure(
        bench="coordinator",
        name=name,
        value=found["median"],
        unit="ms",
        goal=GOAL_MS,
        detail={"times": found, "waiting": WAITING, "nodes": NODES, "queues": QUEUES, **more},
    )


def cluster(*, busy: float, nodes: int = NODES, waiting: int = WAITING, queues: int = QUEUES, seed: int = 1) -> State:
    """Returns a cluster whose nodes are taken to that part by gangs of the sizes that also wait."""
    rng = random.Random(seed)
    shapes = {(gpus, pool): _shape(gpus, pool) for _, gpus in SIZES for pool in POOLS}
    names = [f"team/q{at}" for at in range(queues)]
    holdings, free = _hold(rng, nodes, names, shapes, busy)
    return State(
        now_s=NOW_S,
        waiting=tuple(_wait(rng, waiting, names, shapes)),
        holdings=tuple(holdings),
        nodes=tuple(free),
        queues=tuple(
            Queue(key=name, weight=1 + at % 5, cohort=f"c{at % 10}", quota=Limits(gpus=nodes))
            for at, name in enumerate(names)
        ),
        starts=tuple(
            Start(holding.queue, holding.let_in_s, Turn(at * 10**9, at * 10**9)) for at, holding in enumerate(holdings)
        ),
    )


def _shape(gpus: int, pool: str) -> PodShape:
    return PodShape(
        (("cpu", gpus * 8000), ("memory", gpus * 100 * GIB), (GPU, gpus)),
        selector=(("pool", pool),),
        tolerations=(Toleration(GPU, "Exists"),),
        affinity=((Requirement("zone", "In", ("a", "b")),),),
    )


def _wait(
    rng: random.Random, count: int, names: list[str], shapes: dict[tuple[int, str], PodShape]
) -> Iterator[Waiting]:
    demands = {
        (pods, gpus): Demand(gpus=pods * gpus, cpus=pods * gpus * 8000, memory=pods * gpus * 100 * GIB)
        for pods, gpus in SIZES
    }
    for at in range(count):
        pods, gpus = rng.choices(SIZES, WEIGHTS)[0]
        yield Waiting(
            key=f"team/wait-{at}",
            queue=rng.choice(names),
            namespace="team",
            since_s=NOW_S - rng.randrange(100_000),
            pods=pods,
            shape=shapes[gpus, rng.choice(POOLS)],
            demand=demands[pods, gpus],
            priority=rng.choice((0, 0, 0, 10)),
            lasts_s=rng.choice((None, 3600.0)),
        )


def _hold(
    rng: random.Random, count: int, names: list[str], shapes: dict[tuple[int, str], PodShape], busy: float
) -> tuple[list[Holding], list[NodeInfo]]:
    """Fills nodes one after the other with gangs, and returns both."""
    used = [0] * count
    holdings: list[Holding] = []
    for pool_at, pool in enumerate(POOLS):
        mine = list(range(pool_at, count, len(POOLS)))
        mine = mine[: int(len(mine) * busy)]
        while mine:
            pods, gpus = rng.choices(SIZES, WEIGHTS)[0]
            placed: list[tuple[str, int]] = []
            for at in list(mine):
                if len(placed) < pods and used[at] + gpus <= 8:
                    used[at] += gpus
                    placed.append((f"node-{at}", 1))
                if len(placed) == pods:
                    break
            mine = [at for at in mine if used[at] < 8]
            if len(placed) < pods:
                if gpus == 1:
                    break
                mine = mine[1:]
                continue
            at_s = NOW_S - rng.randrange(50_000)
            holdings.append(
                Holding(
                    key=f"team/run-{len(holdings)}",
                    queue=rng.choice(names),
                    namespace="team",
                    pods=pods,
                    shape=shapes[gpus, pool],
                    demand=Demand(gpus=pods * gpus),
                    let_in_s=at_s,
                    ends_s=rng.choice((None, NOW_S + 7200.0)),
                    placed=tuple(placed),
                    has_run=True,
                )
            )
    nodes = [
        NodeInfo(
            name=f"node-{at}",
            allocatable={"cpu": 96_000, "memory": 1000 * GIB, GPU: 8, "pods": 110},
            used={"cpu": used[at] * 8000, "memory": used[at] * 100 * GIB, GPU: used[at], "pods": used[at]},
            labels={"pool": POOLS[at % len(POOLS)], "zone": "ab"[at % 2], "kubernetes.io/hostname": f"node-{at}"},
        )
        for at in range(count)
    ]
    return holdings, nodes
