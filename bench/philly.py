"""Draws jobs of the shape of a real trace.

The jobs have the shape of Microsoft's Philly trace (Jeon et al., USENIX ATC 2019) in the form in which Gavel (Narayanan
et al., OSDI 2020) made it a standard of simulations: Poisson arrivals; 70 % of the jobs have one GPU, 10 % two, 15 %
four, 5 % eight; four in five run 10^x minutes with x even between 1.5 and 3, the others between 3 and 4. That trace has
few jobs of several nodes, and those are the ones that may starve: 2 % of the jobs are made 2, 4 or 8 nodes of eight
GPUs. Half of the jobs have a deadline of twice the time that they take.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from torchctl.controllers.coordinator.values import Demand, PodShape, Queue, Waiting

__all__ = ["GPU", "PER_NODE", "Philly"]

GPU = "nvidia.com/gpu"
PER_NODE = 8
SIZES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8))
"""Pods and GPUs of each."""

SHARES = (0.70, 0.10, 0.15, 0.05)
LARGE_SHARES = (0.5, 0.3, 0.2)
LARGE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Philly:
    """How many jobs come to which cluster.

    Args:
        load: GPU time that the jobs ask for, of the GPU time that the cluster has while they come.
        urgent: Share of the jobs with a higher priority.
    """

    jobs: int = 10_000
    nodes: int = 64
    load: float = 0.9
    urgent: float = 0.05
    seed: int = 1

    def arrivals(self, queues: tuple[Queue, ...]) -> Iterator[tuple[Waiting, float]]:
        """Yields the jobs in the order in which they come, each with the seconds that it takes."""
        rng = random.Random(self.seed)
        drawn = [self._draw(rng) for _ in range(self.jobs)]
        work = sum(pods * gpus * takes_s for (pods, gpus), takes_s in drawn)
        gap_s = work / (self.nodes * PER_NODE * self.load) / self.jobs
        shapes = {gpus: PodShape(((GPU, gpus),)) for _, gpus in SIZES}
        weights = [queue.weight for queue in queues]
        now_s = 0.0
        for at, ((pods, gpus), takes_s) in enumerate(drawn):
            now_s += rng.expovariate(1 / gap_s)
            yield (
                Waiting(
                    key=f"job-{at}",
                    queue=rng.choices(queues, weights)[0].key,
                    namespace="team",
                    since_s=now_s,
                    pods=pods,
                    shape=shapes[gpus],
                    demand=Demand(gpus=pods * gpus),
                    priority=10 if rng.random() < self.urgent else 0,
                    lasts_s=2 * takes_s if rng.random() < 0.5 else None,
                ),
                takes_s,
            )

    def _draw(self, rng: random.Random) -> tuple[tuple[int, int], float]:
        if rng.random() < LARGE:
            size = rng.choices(SIZES[len(SHARES) :], LARGE_SHARES)[0]
        else:
            size = rng.choices(SIZES[: len(SHARES)], SHARES)[0]
        exponent = rng.uniform(1.5, 3) if rng.random() < 0.8 else rng.uniform(3, 4)
        return size, 60 * 10**exponent
