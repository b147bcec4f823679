"""Shows whose turn it is: `python -m bench.turns` prints the first turns, and the shares of 1,000 starts.

Each start is a decision of its own, made from the recorded starts alone, as by a leader that has just begun.
"""

from collections import Counter
from collections.abc import Mapping

import click
from rich.console import Console
from rich.table import Table

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.values import Demand, NodeInfo, PodShape, Queue, Start, State, Waiting
from torchctl.controllers.settings import CoordinatorSettings, PolicyName

__all__ = ["turns"]

GPU = "nvidia.com/gpu"
FEW = {"a": 5, "b": 1, "c": 1}
MANY = {"a": 8, "b": 5, "c": 3, "d": 2, "e": 1, "f": 1}
POLICIES = (PolicyName.SMOOTH_WEIGHTED_ROUND_ROBIN, PolicyName.WEIGHTED_ROUND_ROBIN)


def turns(policy: PolicyName, weights: Mapping[str, int], count: int) -> list[str]:
    """Returns the queues of so many starts, all of which always have a job that waits and fits."""
    queues = tuple(Queue(key=name, weight=weight) for name, weight in weights.items())
    shape, starts = PodShape(((GPU, 1),)), list[Start]()
    for at in range(count):
        waiting = tuple(
            Waiting(key=f"{name}-{at}", queue=name, namespace="", since_s=0, pods=1, shape=shape, demand=Demand(gpus=1))
            for name in weights
        )
        decision = decide(
            State(
                now_s=at + 1,
                waiting=waiting,
                nodes=(NodeInfo(name="node", allocatable={GPU: 8, "pods": 110}),),
                queues=queues,
                starts=tuple(starts),
                settings=CoordinatorSettings(policy=policy, max_starts=1),
            )
        )
        (given,) = decision.let_in
        starts.append(Start(given.queue, at + 1, given.turn, given.cohort_turn))
    return [start.queue for start in starts]


@click.command()
@click.option("--count", default=1000, help="Starts that are counted.")
def main(count: int) -> None:
    """Print the first turns of each policy, and its share of the starts beside the weights."""
    console = Console(width=100)
    for policy in POLICIES:
        console.print(f"{policy}, weights 5, 1, 1: {' '.join(turns(policy, FEW, 14))}")
    found = {policy: Counter(turns(policy, MANY, count)) for policy in POLICIES}
    table = Table("queue", "weight", "share by weight", *POLICIES)
    for name, weight in MANY.items():
        shares = (f"{found[policy][name]} ({found[policy][name] / count:.1%})" for policy in POLICIES)
        table.add_row(name, str(weight), f"{weight / sum(MANY.values()):.1%}", *shares)
    console.print(table)


if __name__ == "__main__":
    main()
