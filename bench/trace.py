"""Plays a month of a cluster under the coordinator, beside plain FIFO and without reservations.

`python -m bench.trace` prints a table.

The jobs are those of `philly.py`. Pods are placed as kube-scheduler does by default: on the node with most GPUs free.
Nothing fails and starting takes no time.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import mean

import click
from rich.console import Console
from rich.table import Table

from bench.figures import percentile
from bench.philly import GPU, PER_NODE, Philly
from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Decision, LetIn, Preempt
from torchctl.controllers.coordinator.values import (
    Holding,
    NodeInfo,
    Preemption,
    Queue,
    Start,
    State,
    Waiting,
)
from torchctl.controllers.settings import CoordinatorSettings

__all__ = ["Tally", "play", "strict_fifo"]

GRACE_S = 60.0
_RECENT = 300
"""Recorded starts that the decision gets."""


@dataclass(slots=True)
class Tally:
    """What came of it.

    Args:
        waits_s: Seconds from arrival to the last start, by GPUs of the job.
        busy_gpu_s: GPU time in use until the last job came.
        came_s: When that was.
    """

    waits_s: dict[int, list[float]] = field(default_factory=dict)
    preemptions: int = 0
    busy_gpu_s: float = 0.0
    came_s: float = 0.0
    ended_s: float = 0.0
    unstarted: int = 0

    def utilisation(self, nodes: int) -> float:
        """Returns the share of the cluster's GPU time that was in use until the last job came."""
        return self.busy_gpu_s / (nodes * PER_NODE * self.came_s) if self.came_s else 0.0


def strict_fifo(state: State) -> Decision:
    """Lets the oldest gang in if it fits, and nobody else: what a plain queue does."""
    oldest = min(state.waiting, key=lambda gang: (gang.since_s, gang.key), default=None)
    return decide(replace(state, waiting=() if oldest is None else (oldest,)))


class Cluster:
    """The cluster while it is played."""

    def __init__(self, trace: Philly, queues: tuple[Queue, ...], settings: CoordinatorSettings) -> None:
        self._queues, self._settings = queues, settings
        self._free = {f"n{at}": PER_NODE for at in range(trace.nodes)}
        self._pods = dict.fromkeys(self._free, 0)
        self.waiting: dict[str, Waiting] = {}
        self.holdings: dict[str, Holding] = {}
        self.starts: list[Start] = []

    def state(self, now_s: float) -> State:
        return State(
            now_s=now_s,
            waiting=tuple(self.waiting.values()),
            holdings=tuple(self.holdings.values()),
            nodes=tuple(
                NodeInfo(
                    name=name,
                    allocatable={GPU: PER_NODE, "pods": 110},
                    used={GPU: PER_NODE - free, "pods": self._pods[name]},
                )
                for name, free in self._free.items()
            ),
            queues=self._queues,
            starts=tuple(self.starts[-_RECENT:]),
            settings=self._settings,
        )

    def start(self, given: LetIn, start: Start) -> Waiting:
        """Places the pods of a gang, each on the node with most free."""
        gang, key = self.waiting.pop(given.key), given.key
        able = given.only or tuple(self._free.keys() - set(given.avoid))
        gpus = gang.shape.requests[0][1]
        placed: dict[str, int] = {}
        for _ in range(gang.pods):
            name = max(able, key=lambda name: (self._free[name], name))
            if self._free[name] < gpus:
                raise RuntimeError(f"half a gang: {key}")
            self._move(name, gpus)
            placed[name] = placed.get(name, 0) + 1
        self.holdings[key] = Holding(
            key=key,
            queue=gang.queue,
            namespace=gang.namespace,
            pods=gang.pods,
            shape=gang.shape,
            demand=gang.demand,
            let_in_s=start.at_s,
            priority=gang.priority,
            ends_s=None if gang.lasts_s is None else start.at_s + gang.lasts_s,
            placed=tuple(placed.items()),
            has_run=True,
        )
        self.starts.append(start)
        return gang

    def end(self, key: str) -> Holding:
        holding = self.holdings.pop(key)
        gpus = holding.shape.requests[0][1]
        for name, count in holding.placed:
            for _ in range(count):
                self._move(name, -gpus)
        return holding

    def leave(self, victim: Preempt) -> None:
        self.holdings[victim.key] = replace(self.holdings[victim.key], leaving_for=victim.leaving_for)

    def reserve(self, keys: tuple[str, ...]) -> None:
        for gang in list(self.waiting.values()):
            if gang.reserved != (gang.key in keys):
                self.waiting[gang.key] = replace(gang, reserved=gang.key in keys)

    def _move(self, name: str, gpus: int) -> None:
        self._free[name] -= gpus
        self._pods[name] += 1 if gpus > 0 else -1


def play(
    trace: Philly,
    queues: tuple[Queue, ...],
    settings: CoordinatorSettings,
    *,
    choose: Callable[[State], Decision] = decide,
    until_s: float = float("inf"),
) -> Tally:
    """Plays a trace until every job has ended.

    Args:
        choose: Decides; at every arrival and every end.
        until_s: When to stop at the latest.

    Raises:
        RuntimeError: A gang that was let in finds no place for one of its pods.
    """
    cluster, tally = Cluster(trace, queues, settings), Tally()
    events: list[tuple[float, int, str, str]] = []
    jobs: dict[str, tuple[Waiting, float]] = {}
    for gang, takes_s in trace.arrivals(queues):
        jobs[gang.key] = (gang, takes_s)
        heapq.heappush(events, (gang.since_s, len(events), "come", gang.key))
    number, runs, began, before_s = len(events), dict.fromkeys(jobs, 0), dict[str, float](), 0.0
    tally.came_s = max(gang.since_s for gang, _ in jobs.values())
    while events and events[0][0] <= until_s:
        now_s, _, what, key = heapq.heappop(events)
        busy_s = max(0.0, min(now_s, tally.came_s) - before_s)
        tally.busy_gpu_s += busy_s * sum(held.demand.gpus for held in cluster.holdings.values())
        before_s = now_s
        name, _, run = key.partition("/")
        if what == "come":
            cluster.waiting[name] = jobs[name][0]
        elif int(run) == runs[name] and name in cluster.holdings:
            cluster.end(name)
            if what == "leave":
                cluster.waiting[name] = jobs[name][0]
            else:
                _count(tally, jobs[name], began[name], now_s)
        while True:
            decision = choose(cluster.state(now_s))
            for given in decision.let_in:
                gang = cluster.start(given, Start(given.queue, now_s, given.turn, given.cohort_turn))
                runs[gang.key] += 1
                began[gang.key] = now_s
                number += 1
                heapq.heappush(events, (now_s + jobs[gang.key][1], number, "end", f"{gang.key}/{runs[gang.key]}"))
            for victim in decision.preempt:
                cluster.leave(victim)
                tally.preemptions += 1
                number += 1
                heapq.heappush(events, (now_s + GRACE_S, number, "leave", f"{victim.key}/{runs[victim.key]}"))
            cluster.reserve(decision.reserved)
            if not decision.let_in:
                break
    tally.unstarted = len(cluster.waiting)
    return tally


def _count(tally: Tally, job: tuple[Waiting, float], began_s: float, now_s: float) -> None:
    gang, _ = job
    tally.waits_s.setdefault(gang.demand.gpus, []).append(began_s - gang.since_s)
    tally.ended_s = now_s


FOUR_QUEUES = tuple(Queue(key=f"q{at}", weight=weight) for at, weight in enumerate((4, 2, 1, 1)))

WAYS: dict[str, tuple[tuple[Queue, ...], CoordinatorSettings, Callable[[State], Decision]]] = {
    "plain FIFO": (FOUR_QUEUES, CoordinatorSettings(), strict_fifo),
    "no reservation": (FOUR_QUEUES, CoordinatorSettings(reserve_after_s=float("inf")), decide),
    "coordinator": (FOUR_QUEUES, CoordinatorSettings(), decide),
    "and preemption": (
        tuple(replace(queue, preemption=Preemption.WITHIN_QUEUE) for queue in FOUR_QUEUES),
        CoordinatorSettings(),
        decide,
    ),
}


@click.command()
@click.option("--jobs", default=10_000, help="Jobs that come.")
@click.option("--nodes", default=64, help="Nodes of eight GPUs.")
@click.option("--load", default=0.9, help="GPU time asked for, of what there is.")
@click.option("--seed", default=1, help="Another one draws other jobs.")
@click.option("--only", multiple=True, type=click.Choice([*WAYS]), help="Play only this way; may be repeated.")
def main(jobs: int, nodes: int, load: float, seed: int, only: tuple[str, ...]) -> None:
    """Print how long jobs of each size wait in each way, in hours: mean, 95th percentile, longest."""
    trace = Philly(jobs=jobs, nodes=nodes, load=load, seed=seed)
    names = only or tuple(WAYS)
    tallies = [play(trace, *WAYS[name][:2], choose=WAYS[name][2]) for name in names]
    table = Table("GPUs of the job", "jobs", *names)
    for gpus in sorted({gpus for tally in tallies for gpus in tally.waits_s}):
        count = str(max(len(tally.waits_s.get(gpus, ())) for tally in tallies))
        table.add_row(str(gpus), count, *(_waits(tally.waits_s.get(gpus, [])) for tally in tallies))
    table.add_row("utilisation", "", *(f"{tally.utilisation(nodes):.1%}" for tally in tallies))
    table.add_row("last job ended, days", "", *(f"{tally.ended_s / 86400:.1f}" for tally in tallies))
    table.add_row("preemptions", "", *(str(tally.preemptions) for tally in tallies))
    Console(width=130).print(table)


def _waits(waits_s: list[float]) -> str:
    if not waits_s:
        return "-"
    hours = [wait / 3600 for wait in waits_s]
    return f"{mean(hours):.1f} / {percentile(hours, 95):.1f} / {max(hours):.1f}"


if __name__ == "__main__":
    main()
