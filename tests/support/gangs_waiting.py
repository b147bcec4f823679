"""Makes the coordinator's values in a line, and plays kube-scheduler for what it lets in."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from torchctl.controllers.coordinator.capacity import slots_in
from torchctl.controllers.coordinator.decision import Decision, LetIn
from torchctl.controllers.coordinator.matching import NODE_NAME, matches
from torchctl.controllers.coordinator.values import (
    Demand,
    Holding,
    NodeInfo,
    PodShape,
    Queue,
    Requirement,
    Start,
    State,
    Waiting,
)

GPU = "nvidia.com/gpu"
NOW_S = 10_000.0


@cache
def shape(gpus: int, **more: Any) -> PodShape:
    """The same object for the same arguments, as gangs whose pods ask for the same have."""
    return PodShape(((GPU, gpus),), **more)


def node(name: str, gpus: int = 8, *, used: int = 0, pods: int = 110, **more: Any) -> NodeInfo:
    return NodeInfo(name=name, allocatable={GPU: gpus, "pods": pods}, used={GPU: used}, **more)


def nodes(count: int, gpus: int = 8) -> tuple[NodeInfo, ...]:
    return tuple(node(f"n{at}", gpus) for at in range(count))


def gang(key: str, pods: int = 1, gpus: int = 8, *, queue: str = "q", since_s: float = NOW_S, **more: Any) -> Waiting:
    more.setdefault("shape", shape(gpus))
    demand = Demand(gpus=pods * gpus)
    return Waiting(key=key, queue=queue, namespace="team", since_s=since_s, pods=pods, demand=demand, **more)


def holding(given: Waiting, placed: Iterable[tuple[str, int]] = (), **more: Any) -> Holding:
    more.setdefault("let_in_s", NOW_S)
    more.setdefault("has_run", bool(placed))
    return Holding(
        key=given.key,
        queue=given.queue,
        namespace=given.namespace,
        pods=given.pods,
        shape=more.pop("shape", given.shape),
        demand=given.demand,
        priority=given.priority,
        placed=tuple(placed),
        **more,
    )


def state(
    waiting: Sequence[Waiting] = (),
    there: Sequence[NodeInfo] = (),
    holdings: Sequence[Holding] = (),
    queues: Sequence[Queue] = (Queue(key="q"),),
    **more: Any,
) -> State:
    more.setdefault("now_s", NOW_S)
    return State(waiting=tuple(waiting), nodes=tuple(there), holdings=tuple(holdings), queues=tuple(queues), **more)


def let_in(decision: Decision) -> list[str]:
    return [given.key for given in decision.let_in]


def limited(asked: PodShape, given: LetIn) -> PodShape:
    """Returns the shape of a gang's pods with the nodes that it was let in for."""
    if given.only:
        return asked.needing(Requirement(NODE_NAME, "In", given.only))
    return asked.needing(Requirement(NODE_NAME, "NotIn", given.avoid)) if given.avoid else asked


class Misplaced(Exception):
    """A pod of a gang that was let in finds no node."""


def after(before: State, decision: Decision) -> State:
    """Returns the cluster with what was let in recorded, no pod of it placed yet, and who was preempted leaving."""
    by_key = {given.key: given for given in before.waiting}
    new = [
        holding(
            by_key[given.key],
            shape=limited(by_key[given.key].shape, given),
            let_in_s=before.now_s,
            has_run=False,
            ends_s=_end(by_key[given.key], before.now_s),
            autoscaled=by_key[given.key].autoscaled,
        )
        for given in decision.let_in
    ]
    leaving = {given.key: given.leaving_for for given in decision.preempt}
    holdings = tuple(replace(held, leaving_for=leaving.get(held.key, held.leaving_for)) for held in before.holdings)
    starts = tuple(Start(given.queue, before.now_s, given.turn, given.cohort_turn) for given in decision.let_in)
    gone = {given.key for given in decision.let_in}
    kept = set(decision.reserved)
    return replace(
        before,
        waiting=tuple(replace(w, reserved=w.key in kept) for w in before.waiting if w.key not in gone),
        holdings=(*holdings, *new),
        starts=(*before.starts, *starts),
    )


def _end(given: Waiting, now_s: float) -> float | None:
    return None if given.lasts_s is None else now_s + given.lasts_s


def placed(before: State, rng: random.Random, *, pods: int | None = None) -> State:
    """Places missing pods, in any order and on any node that takes them, as an unlucky scheduler would.

    Args:
        pods: How many are placed at most; None: all.

    Raises:
        Misplaced: A pod finds no node, and none will come for it.
    """
    free = {n.name: {name: there - n.used.get(name, 0) for name, there in n.allocatable.items()} for n in before.nodes}
    labels, taints = {n.name: n.labels for n in before.nodes}, {n.name: n.taints for n in before.nodes}
    missing = [held.key for held in before.holdings if not held.leaving_for for _ in range(held.missing)]
    rng.shuffle(missing)
    by_key = {held.key: held for held in before.holdings}
    where: dict[str, dict[str, int]] = {key: dict(held.placed) for key, held in by_key.items()}
    for key in missing[:pods]:
        asked = by_key[key].shape
        able = [
            name
            for name, left in free.items()
            if slots_in(asked, left) and matches(asked, {**labels[name], NODE_NAME: name}, taints[name])
        ]
        if asked.one_per_node:
            able = [name for name in able if name not in where[key]]
        if not able and by_key[key].autoscaled:
            continue
        if not able:
            raise Misplaced(key)
        name = rng.choice(able)
        where[key][name] = where[key].get(name, 0) + 1
        _take(free[name], asked, 1)
    return replace(
        before,
        nodes=tuple(
            replace(n, used={name: n.allocatable[name] - left for name, left in free[n.name].items()})
            for n in before.nodes
        ),
        holdings=tuple(
            replace(
                h,
                placed=tuple(where[h.key].items()),
                has_run=h.has_run or sum(where[h.key].values()) + h.done >= h.pods,
            )
            for h in before.holdings
        ),
    )


def without(before: State, ended: Iterable[str]) -> State:
    """Returns the cluster without these gangs."""
    gone = set(ended)
    used = {n.name: dict(n.used) for n in before.nodes}
    for held in before.holdings:
        if held.key in gone:
            for name, count in held.placed:
                _take(used[name], held.shape, -count, grow=True)
    return replace(
        before,
        nodes=tuple(replace(n, used=used[n.name]) for n in before.nodes),
        holdings=tuple(h for h in before.holdings if h.key not in gone),
    )


def _take(amounts: dict[str, int], asked: PodShape, pods: int, *, grow: bool = False) -> None:
    for name, value in (*asked.requests, ("pods", 1)):
        amounts[name] = amounts.get(name, 0) + (pods if grow else -pods) * value
