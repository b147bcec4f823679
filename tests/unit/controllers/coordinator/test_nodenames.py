"""A gang beside a reservation of more nodes than a record can name."""

from dataclasses import replace
from typing import Any

import pytest
from gangs_waiting import NOW_S, gang, holding, let_in, node, shape, state

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Decision, Why
from torchctl.controllers.coordinator.nodenames import MOST_NODES
from torchctl.controllers.coordinator.values import Holding, Limits, NodeInfo, Preemption, Queue, Requirement, Waiting

LARGE = MOST_NODES + 10


def large(pods: int = LARGE) -> Waiting:
    return gang("large", pods, since_s=0.0)


def cluster(free: int, **more: Any) -> tuple[list[NodeInfo], list[Holding]]:
    """Returns nodes for the large gang, one of them taken, and others."""
    runs = holding(gang("runs"), [("k0", 1)])
    kept = [node(f"k{at}", used=0 if at else 8) for at in range(LARGE)]
    return [*kept, *(node(f"o{at}", 4, **more) for at in range(free))], [runs]


KEPT = replace(large(), reserved=True)


def decision(free: int, small: Waiting, **more: Any) -> Decision:
    there, holdings = cluster(free, **more)
    return decide(state([large(), small], there, holdings))


def test_it_is_limited_to_the_nodes_that_are_left() -> None:
    found = decision(3, gang("small", gpus=4))
    assert let_in(found) == ["small"]
    assert (found.let_in[0].only, found.let_in[0].avoid) == (("o0", "o1", "o2"), ())
    assert found.reserved == ("large",)


def test_only_nodes_that_it_might_run_on_are_named() -> None:
    small = gang("small", shape=shape(4, selector=(("pool", "b"),)))
    there, holdings = cluster(MOST_NODES + 1, labels={"pool": "b"})
    there[1:3] = [replace(given, labels={"pool": "b"}) for given in there[1:3]]
    found = decide(state([large(), small], there, holdings))
    assert (found.let_in[0].only, found.let_in[0].avoid) == ((), ("k1", "k2"))


@pytest.mark.parametrize("small", [gang("small", gpus=4), gang("small", gpus=0)])
def test_it_waits_and_is_told_if_neither_fits(small: Waiting) -> None:
    """It was dropped after the decision before: nobody was told, and it took the turns and the room of others."""
    found = decision(MOST_NODES + 1, small)
    assert let_in(found) == []
    (told,) = (told for told in found.told if told.key == "small")
    assert (told.why, told.waits_for) == (Why.BEHIND, "large")
    assert told.message == (
        "there is room beside the nodes that are kept for job large, but they are too many to be named: it waits until "
        "that job is let in, or submit it with a nodeSelector or node affinity that chooses none of them"
    )


AUTOSCALED = gang("small", gpus=4, queue="brought", priority=1, autoscaled=True)


def test_it_hears_the_same_if_nodes_come_for_it() -> None:
    there, holdings = cluster(0)
    queues = (Queue(key="q"), Queue(key="brought"))
    found = decide(state([KEPT, AUTOSCALED], there, holdings, queues))
    (told,) = (told for told in found.told if told.key == "small")
    assert (let_in(found), told.why, told.waits_for) == ([], Why.BEHIND, "large")


@pytest.mark.parametrize(("pods", "leave"), [(LARGE, []), (1, ["low"])])
def test_nobody_leaves_for_a_gang_that_must_wait_then(pods: int, leave: list[str]) -> None:
    """It lacks quota, for which others leave; the nodes that it has to avoid are too many only beside a large gang."""
    there, holdings = cluster(1)
    low = holding(gang("low", gpus=4, queue="brought"), [("o0", 1)])
    brought = Queue(key="brought", quota=Limits(jobs=1), preemption=Preemption.WITHIN_QUEUE)
    found = decide(state([replace(KEPT, pods=pods), AUTOSCALED], there, [*holdings, low], (Queue(key="q"), brought)))
    assert [given.key for given in found.preempt] == leave


@pytest.mark.parametrize(("others", "goes"), [(3, True), (MOST_NODES + 1, False)])
def test_a_large_gang_avoids_all_nodes_but_its_own(others: int, goes: bool) -> None:
    """Small gangs that are being placed elsewhere do not hold it up, unless its nodes cannot be named either way."""
    pool = [node(f"k{at}") for at in range(LARGE)]
    elsewhere = [node(f"o{at}", used=4) for at in range(others)]
    names = tuple(given.name for given in elsewhere)
    only = shape(1).needing(Requirement("metadata.name", "In", names))
    busy = holding(gang("busy", 1, shape=only))
    found = decide(state([KEPT], [*pool, *elsewhere], [busy]))
    assert [(given.only, given.avoid) for given in found.let_in] == ([((), names)] if goes else [])
    assert [(given.why, given.message) for given in found.told] == (
        [] if goes else [(Why.NEXT, "the job is let in as soon as the pods of others are placed")]
    )


def test_room_for_it_alone_is_used_without_names() -> None:
    """It fits on all nodes, so that those that are kept for it need not be named."""
    there, _ = cluster(0)
    whole = [node(given.name) for given in there]
    found = decide(state([large()], whole, now_s=NOW_S))
    assert let_in(found) == ["large"]
    assert (found.let_in[0].only, found.let_in[0].avoid) == ((), ())
