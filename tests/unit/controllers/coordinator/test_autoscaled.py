"""Queues for which a cluster autoscaler brings nodes: it sees only pods that wait, so quotas alone let jobs in."""

import random
from dataclasses import replace
from typing import Any

import pytest
from effort import examples
from gangs_waiting import GPU, NOW_S, after, gang, holding, let_in, node, nodes, placed, shape, state, without
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Decision, LetIn, Preempt, TakeBack, Why
from torchctl.controllers.coordinator.values import (
    NOBODY,
    Holding,
    Limits,
    NodeInfo,
    Preemption,
    Queue,
    State,
    Taint,
    Waiting,
)
from torchctl.controllers.settings import CoordinatorSettings

PROVISION_S = CoordinatorSettings().provision_within_s
AUTOSCALED = Queue(key="auto")
QUEUES = (AUTOSCALED, Queue(key="q"))


def auto(key: str, pods: int = 2, gpus: int = 8, **more: Any) -> Waiting:
    return replace(gang(key, pods, gpus, queue="auto"), autoscaled=True, **more)


def going(given: Waiting, *where: tuple[str, int], let_in_s: float = NOW_S - PROVISION_S) -> Holding:
    return replace(holding(given, where, has_run=False, let_in_s=let_in_s), autoscaled=True)


@pytest.mark.parametrize("there", [(), nodes(1), (node("n0", taints=(Taint("a", "b", "NoSchedule"),)),)])
def test_a_job_is_let_in_without_nodes(there: tuple[NodeInfo, ...]) -> None:
    found = decide(state([auto("a", 8)], there, queues=QUEUES))
    assert found.let_in == (LetIn("a", "auto", found.let_in[0].turn),)


def test_a_quota_holds_it_back_all_the_same() -> None:
    queue = replace(AUTOSCALED, quota=Limits(gpus=8))
    found = decide(state([auto("a", 1), auto("b", 1)], (), queues=(queue,)))
    assert let_in(found) == ["a"]
    assert (found.told[0].why, found.told[0].message) == (
        Why.QUOTA,
        "the job takes 8 GPUs, and queue auto has 0 GPUs of its quota left",
    )


def test_pods_that_wait_for_nodes_hold_up_no_other_queue() -> None:
    found = decide(state([gang("small", gpus=1)], [node("n0", used=4)], [going(auto("a", 8))], QUEUES))
    assert let_in(found) == ["small"]


def test_room_that_such_pods_may_take_is_given_to_nobody() -> None:
    found = decide(state([gang("large")], nodes(1), [going(auto("a", 8), let_in_s=NOW_S)], QUEUES))
    assert (let_in(found), found.told[0].why) == ([], Why.NODES)


def test_it_waits_until_gangs_that_fit_are_placed() -> None:
    """Their room is there and counted, and its pods might take it."""
    fits = holding(gang("fits", 2), has_run=False)
    found = decide(state([auto("a", 1)], nodes(2), [fits], QUEUES))
    assert (let_in(found), found.told[0].why) == ([], Why.NEXT)
    assert let_in(decide(state([auto("a", 1)], nodes(0), [fits], QUEUES))) == ["a"]


def test_it_takes_no_room_of_gangs_with_equal_pods() -> None:
    """Gangs of one template, or of templates that ask for the same, share one shape."""
    shared = shape(8)
    starts = holding(gang("starts", 2, shape=shared), has_run=False)
    found = decide(state([auto("a", 1, shape=shared)], nodes(2), [starts], QUEUES))
    assert (let_in(found), found.told[0].why) == ([], Why.NEXT)
    found = decide(
        state([gang("first", 2, shape=shared, since_s=0.0), auto("a", 1, shape=shared)], nodes(2), queues=QUEUES)
    )
    assert len(let_in(found)) == 1


def test_it_avoids_nodes_that_are_kept_for_a_gang() -> None:
    waits = gang("waits", 2, since_s=0.0, reserved=True)
    runs = holding(gang("runs", 1), [("n0", 1)])
    found = decide(state([waits, auto("a", 8)], [node("n0", used=8), node("n1")], [runs], QUEUES))
    assert found.reserved == ("waits",)
    assert [(given.key, given.avoid) for given in found.let_in] == [("a", ("n0", "n1"))]


def test_it_reclaims_quota_and_no_room() -> None:
    own = replace(AUTOSCALED, quota=Limits(gpus=16), cohort="c", preemption=Preemption.RECLAIM)
    lent = Queue(key="q", quota=Limits(gpus=0), cohort="c")
    borrows = [holding(gang(name), [(f"n{at}", 1)], let_in_s=float(at)) for at, name in enumerate("xy")]
    there = [node("n0", used=8), node("n1", used=8)]
    assert decide(state([auto("a", 1)], there, borrows, (own, lent))).preempt == (Preempt("y", "a"),)
    assert decide(state([auto("a", 1)], there, borrows[:1], (own, lent))).preempt == ()


FULL = (node("n0", used=8), node("n1", used=8))


def test_pods_have_longer_to_be_placed() -> None:
    soon = going(auto("a"), ("n0", 1), let_in_s=NOW_S - PROVISION_S + 1)
    assert decide(state([], FULL, [soon], QUEUES)).take_back == ()
    assert decide(state([], FULL, [going(auto("a"), ("n0", 1))], QUEUES)).take_back == (TakeBack("a", 1),)


def test_gangs_that_lack_nodes_go_one_by_one() -> None:
    """If all of them went at once, they would come back at once, and none would ever run."""
    first, last = going(auto("a"), ("n0", 1), let_in_s=0.0), going(auto("b"), ("n1", 1), let_in_s=1.0)
    assert decide(state([], FULL, [first, last], QUEUES)).take_back == (TakeBack("b", 1),)
    urgent = replace(last, priority=1)
    assert decide(state([], FULL, [first, urgent], QUEUES)).take_back == (TakeBack("a", 1),)
    for other in (replace(last, leaving_for=NOBODY), replace(last, let_in_s=NOW_S)):
        assert decide(state([], FULL, [first, other], QUEUES)).take_back == ()
    alone = replace(last, has_run=True)
    assert decide(state([], FULL, [first, alone], QUEUES)).take_back == (TakeBack("a", 1),)


@pytest.mark.parametrize(
    ("late_s", "free", "odd", "stays"),
    [
        (0.0, 2, (), True),
        (0.0, 1, (), False),
        (2 * PROVISION_S, 2, (), False),
        (0.0, 2, ("volumes",), True),
        (2 * PROVISION_S, 2, ("volumes",), False),
    ],
)
def test_nodes_that_one_left_go_to_who_stayed(late_s: float, free: int, odd: tuple[str, ...], stays: bool) -> None:
    """kube-scheduler needs a moment. If it places them nowhere although there is room, something else is wrong."""
    asked = auto("a", 3, shape=shape(8, unmodelled=odd))
    first = going(asked, ("n0", 1), let_in_s=NOW_S - PROVISION_S - late_s)
    left = replace(auto("b"), not_before_s=NOW_S + 30)
    there = [node("n0", used=8), *(node(f"n{at + 1}") for at in range(free))]
    found = decide(state([left], there, [first], QUEUES))
    assert found.take_back == (() if stays else (TakeBack("a", 2),))


def test_a_gang_that_holds_no_node_waits_for_nobody() -> None:
    """It may ask for nodes that never come, and while it is late no other gang is let in."""
    hopeless = going(auto("a", shape=shape(8, selector=(("pool", "gone"),))))
    starts = going(auto("b"), ("n0", 1), let_in_s=NOW_S)
    assert decide(state([], FULL, [hopeless, starts], QUEUES)).take_back == (TakeBack("a", 2),)
    assert decide(state([], nodes(2), [going(auto("a")), starts], QUEUES)).take_back == ()


def test_nobody_else_gets_nodes_while_one_lacks_them_for_long() -> None:
    late = going(auto("a"), ("n0", 1))
    found = decide(state([auto("b", 1), gang("small", gpus=1)], [node("n0", used=8), node("n1", 4)], [late], QUEUES))
    assert (let_in(found), found.told[0].key, found.told[0].why) == (["small"], "b", Why.NEXT)


def back_off(before: State, decision: Decision) -> State:
    """Takes back the room of gangs, which wait again, for a minute."""
    lost = {given.key for given in decision.take_back}
    again = [
        replace(
            auto(held.key, held.pods), shape=held.shape, demand=held.demand, not_before_s=before.now_s + 60, since_s=0.0
        )
        for held in before.holdings
        if held.key in lost
    ]
    return replace(without(before, lost), waiting=(*before.waiting, *again))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    most=st.integers(4, 5),
    seed=st.integers(0, 2**32),
    odd=st.sampled_from([(), ("volumes",)]),
)
@settings(max_examples=examples(50))
def test_every_gang_runs_that_the_autoscaler_has_nodes_for(
    sizes: list[int], most: int, seed: int, odd: tuple[str, ...]
) -> None:
    """The nodes go to pods in any order, so that gangs hold nodes that others lack, and each runs for a while.

    They come once there are pods, and go if there are none.
    """
    rng, ran, ends = random.Random(seed), set[str](), dict[str, float]()
    asked = shape(8, unmodelled=odd)
    waiting = [auto(f"g{at}", pods, since_s=0.0, shape=asked) for at, pods in enumerate(sizes)]
    now = state(waiting, (), queues=QUEUES)
    for _ in range(400):
        if len(ran) == len(sizes):
            break
        decision = decide(now)
        now = back_off(after(now, decision), decision)
        decision = decide(now)  # before the scheduler has seen who left
        now = back_off(after(now, decision), decision)
        now = replace(now, nodes=(now.nodes or nodes(most)) if now.holdings else ())
        now = place_some(now, rng)
        for held in now.holdings:
            if held.has_run:
                ran.add(held.key)
                ends.setdefault(held.key, now.now_s + 900)
        now = without(now, [key for key, end in ends.items() if end <= now.now_s])
        now = replace(now, now_s=now.now_s + 60)
    assert ran == {f"g{at}" for at in range(len(sizes))}


def place_some(before: State, rng: random.Random) -> State:
    """Places as many pods as there are nodes for, one by one and in any order."""
    free = sum(given.allocatable[GPU] - given.used.get(GPU, 0) for given in before.nodes) // 8
    return placed(before, rng, pods=free)


DRAWN = st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4, 8]), st.booleans())


@given(
    gangs=st.lists(DRAWN, min_size=1, max_size=8),
    there=st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=examples(300))
def test_half_a_gang_only_where_nodes_come(gangs: list[tuple[int, int, bool]], there: list[int], seed: int) -> None:
    """Gangs of other queues on the same nodes find all their places, whatever the order in which pods are placed."""
    rng = random.Random(seed)
    waiting = [
        auto(f"g{at}", pods, gpus) if comes else gang(f"g{at}", pods, gpus)
        for at, (pods, gpus, comes) in enumerate(gangs)
    ]
    now = state(waiting, [node(f"n{at}", gpus) for at, gpus in enumerate(there)], queues=QUEUES)
    for _ in range(2 * len(gangs)):
        now = after(now, decide(now))
        now = placed(now, rng, pods=rng.choice([0, 1, 2, 4, None]))
    placed(now, rng)
