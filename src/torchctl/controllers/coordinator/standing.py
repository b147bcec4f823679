"""How queues and cohorts stand when a decision is made: who waits, who is let in, what is held of which quota. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from torchctl.controllers.coordinator.decision import Decision
from torchctl.controllers.coordinator.quota import RESOURCES, Ledger
from torchctl.controllers.coordinator.values import Demand, Limits, State

__all__ = ["Booked", "Loss", "Standing", "losses", "standing"]


class Loss(StrEnum):
    """Why a job that was let in loses its place."""

    PRIORITY = "Priority"
    RECLAIM = "Reclaim"
    NOT_PLACED = "PodsNotPlaced"


@dataclass(frozen=True, slots=True)
class Booked:
    """What is held of one resource, and the quota of it: CPUs in thousandths, memory in bytes."""

    resource: str
    used: int
    quota: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The figures of one moment, by the key of each queue and the name of each cohort.

    Args:
        waiting: Jobs that wait to be let in.
        let_in: Jobs that hold a place.
        queues: What the jobs of a queue hold, of the resources for which it has a quota.
        cohorts: The same of all queues of a cohort together; its quota is what they own together.
    """

    waiting: Mapping[str, int]
    let_in: Mapping[str, int]
    queues: Mapping[str, tuple[Booked, ...]]
    cohorts: Mapping[str, tuple[Booked, ...]]


def standing(state: State) -> Standing:
    """Returns the figures of a state. Jobs of queues that do not exist count for none."""
    waiting = Counter(gang.queue for gang in state.waiting)
    let_in = Counter(holding.queue for holding in state.holdings)
    let_in.update(gang.queue for gang in state.unreadable if gang.holds)
    ledger = Ledger(state.queues, (), state.holdings)
    return Standing(
        waiting={queue.key: waiting[queue.key] for queue in state.queues},
        let_in={queue.key: let_in[queue.key] for queue in state.queues},
        queues={queue.key: tuple(_booked(ledger.used(queue.key), queue.quota)) for queue in state.queues},
        cohorts={name: tuple(_booked(used, owned)) for name, used, owned in ledger.cohorts()},
    )


def losses(state: State, decision: Decision) -> dict[str, Loss]:
    """Returns why each job that a decision makes leave loses its place."""
    leaving = {given.key: given.leaving_for for given in decision.preempt}
    keys = leaving.keys() | set(leaving.values())
    queues = {gang.key: gang.queue for gang in state.waiting if gang.key in keys}
    queues |= {holding.key: holding.queue for holding in state.holdings if holding.key in keys}
    found = {given.key: Loss.NOT_PLACED for given in decision.take_back}
    for key, preemptor in leaving.items():
        found[key] = Loss.PRIORITY if queues.get(key) == queues.get(preemptor) else Loss.RECLAIM
    return found


def _booked(used: Demand, quota: Limits) -> Iterator[Booked]:
    for resource, held, bound in zip(RESOURCES, used, quota, strict=True):
        if bound is not None:
            yield Booked(resource, held, bound)
