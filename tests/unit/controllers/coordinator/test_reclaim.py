"""Preemption: lower priority first, then who was let in last, whole gangs, and no more than needed."""

import random
from dataclasses import replace

import pytest
from effort import examples
from gangs_waiting import NOW_S, after, gang, holding, let_in, node, nodes, placed, shape, state, without
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Preempt, Why
from torchctl.controllers.coordinator.values import Holding, Limits, NodeInfo, Preemption, Queue, State, Waiting

WITHIN = Queue(key="q", preemption=Preemption.WITHIN_QUEUE)


def full(holdings: list[Holding], count: int) -> tuple[NodeInfo, ...]:
    """Nodes of eight GPUs with what the gangs hold on them."""
    used = dict.fromkeys((f"n{at}" for at in range(count)), 0)
    for held in holdings:
        for name, pods in held.placed:
            used[name] += pods * dict(held.shape.requests)["nvidia.com/gpu"]
    return tuple(node(name, used=gpus) for name, gpus in used.items())


def running(key: str, at: int, *, pods: int = 1, gpus: int = 8, **more: object) -> Holding:
    let_in_s = more.pop("let_in_s", NOW_S)
    given = gang(key, pods, gpus, **more)  # type: ignore[arg-type] # the tests' own keywords
    return holding(given, [(f"n{at + pod}", 1) for pod in range(pods)], let_in_s=let_in_s)


@pytest.mark.parametrize(
    ("queue", "victims"), [(Queue(key="q"), ()), (WITHIN, ("low",)), (replace(WITHIN, weight=9), ("low",))]
)
def test_a_lower_priority_leaves_if_the_queue_says_so(queue: Queue, victims: tuple[str, ...]) -> None:
    held = [running("low", 0), running("same", 1, priority=5)]
    decision = decide(state([gang("new", priority=5)], full(held, 2), held, [queue]))
    assert decision.preempt == tuple(Preempt(key, "new") for key in victims)
    assert decision.let_in == ()
    if victims:
        assert (decision.told[0].why, decision.told[0].message) == (Why.PREEMPTING, "1 job of lower rank leaves for it")


def test_the_lowest_goes_first_and_of_equals_who_came_last() -> None:
    held = [
        running("old", 0, let_in_s=1),
        running("new", 1, let_in_s=2),
        running("higher", 2, let_in_s=3, priority=1),
    ]
    one = decide(state([gang("x", 1, priority=5)], full(held, 3), held, [WITHIN]))
    two = decide(state([gang("x", 2, priority=5)], full(held, 3), held, [WITHIN]))
    three = decide(state([gang("x", 3, priority=5)], full(held, 3), held, [WITHIN]))
    assert [given.key for given in one.preempt] == ["new"]
    assert sorted(given.key for given in two.preempt) == ["new", "old"]
    assert sorted(given.key for given in three.preempt) == ["higher", "new", "old"]


def test_a_victim_that_turns_out_not_to_be_needed_stays() -> None:
    """The last that came frees one node, but then the older and larger one is needed anyway, and is enough alone."""
    held = [running("large", 0, pods=2, let_in_s=1), running("small", 2, let_in_s=2)]
    decision = decide(state([gang("x", 2, priority=5)], full(held, 3), held, [WITHIN]))
    assert [given.key for given in decision.preempt] == ["large"]


def test_nobody_leaves_if_that_would_not_be_enough() -> None:
    held = [running("low", 0), running("same", 1, priority=5)]
    assert decide(state([gang("x", 2, priority=5)], full(held, 2), held, [WITHIN])).preempt == ()


def test_nobody_leaves_for_a_gang_that_has_room() -> None:
    held = [running("low", 0)]
    decision = decide(state([gang("x", 1, priority=5)], full(held, 2), held, [WITHIN]))
    assert (let_in(decision), decision.preempt) == (["x"], ())


def test_what_is_freed_is_kept_for_whom_it_is_freed() -> None:
    """While the victim leaves nobody else leaves, and afterwards nobody else takes its place."""
    held = [running("low", 0)]
    there = state([gang("x", 1, priority=5)], full(held, 1), held, [WITHIN])
    leaving = after(there, decide(there))
    assert leaving.holdings[0].leaving_for == "x"
    assert decide(leaving).preempt == ()
    rival = Queue(key="a")
    raced = replace(leaving, waiting=(*leaving.waiting, gang("y", 1, queue="a", since_s=0)), queues=(WITHIN, rival))
    assert decide(raced).preempt == ()
    gone = replace(without(raced, ["low"]), starts=())
    assert "x" in let_in(decide(gone)) or decide(gone).told[0].waits_for == "x"


def test_who_was_not_told_yet_is_told_next() -> None:
    """The record of the second victim could not be written."""
    held = [running("one", 0), running("two", 1)]
    there = state([gang("x", 2, priority=5)], full(held, 2), held, [WITHIN])
    decision = decide(there)
    assert len(decision.preempt) == 2
    half = after(there, replace(decision, preempt=decision.preempt[:1], reserved=()))
    assert decide(half).preempt == decision.preempt[1:]
    assert decide(replace(half, waiting=(replace(half.waiting[0], reserved=True),))).preempt == decision.preempt[1:]


def test_a_gang_with_a_reservation_preempts_too() -> None:
    """Nobody of a lower priority was there when it had waited for long."""
    held = [running("same", 0, priority=5), running("low", 1)]
    there = state([gang("x", 1, priority=5, since_s=0, reserved=True)], full(held, 2), held, [WITHIN])
    decision = decide(there)
    assert (decision.preempt, decision.reserved) == ((Preempt("low", "x"),), ("x",))


def test_who_loses_its_place_anyway_is_not_preempted() -> None:
    low = gang("stuck", 2)
    held = [holding(low, [("n0", 1)], let_in_s=0, has_run=False), running("low", 1)]
    decision = decide(state([gang("x", 2, priority=5)], full(held, 2), held, [WITHIN]))
    assert [given.key for given in decision.take_back] == ["stuck"]
    assert "stuck" not in [given.key for given in decision.preempt]


COHORT = (
    Queue(key="a", cohort="c", quota=Limits(gpus=16), preemption=Preemption.RECLAIM),
    Queue(key="b", cohort="c", quota=Limits(gpus=8)),
)


def test_an_owner_gets_back_what_it_lent() -> None:
    held = [running("own", 0, queue="b", let_in_s=1), running("lent", 1, queue="b", let_in_s=2)]
    decision = decide(state([gang("x", 2, queue="a")], full(held, 3), held, COHORT))
    assert [given.key for given in decision.preempt] == ["lent"]


def test_nobody_reclaims_more_than_it_owns() -> None:
    held = [running("own", 0, queue="b", let_in_s=1), running("lent", 1, queue="b", let_in_s=2)]
    mine = running("mine", 2, queue="a")
    decision = decide(state([gang("x", 2, queue="a")], full([*held, mine], 3), [*held, mine], COHORT))
    assert decision.preempt == ()


def test_a_borrower_is_not_pushed_below_what_it_owns() -> None:
    held = [running("one", 0, queue="b", let_in_s=1), running("two", 1, queue="b", let_in_s=2)]
    owner = replace(COHORT[0], quota=Limits(gpus=24))
    decision = decide(state([gang("x", 3, queue="a")], full(held, 3), held, (owner, COHORT[1])))
    assert decision.preempt == ()


def test_the_quota_that_is_freed_is_not_lent_again() -> None:
    held = [running("own", 0, queue="b", let_in_s=1), running("lent", 1, queue="b", let_in_s=2)]
    there = state([gang("x", 2, queue="a")], full(held, 6), held, COHORT)
    leaving = after(there, decide(there))
    assert leaving.holdings[1].leaving_for == "x"
    raced = replace(leaving, waiting=(*leaving.waiting, gang("y", 1, queue="b", since_s=0)))
    assert let_in(decide(raced)) == []


def test_quota_that_is_being_freed_is_not_lent() -> None:
    """Another queue of the cohort would take it before its owner can."""
    held = [running("own", 0, queue="b", let_in_s=1), running("lent", 1, queue="b", let_in_s=2)]
    small = gang("small", 1, 4, queue="b", since_s=NOW_S)
    owner = replace(COHORT[0], quota=Limits(gpus=12))
    there = state([gang("x", 1, queue="a", since_s=NOW_S), small], full(held, 6), held, (owner, COHORT[1]))
    decision = decide(there)
    assert [given.key for given in decision.preempt] == ["lent"]
    assert let_in(decision) == []


def test_one_victim_leaves_for_one_gang() -> None:
    """Two owners want back what one queue has borrowed, on nodes that they do not share."""
    owners = [replace(COHORT[0], key=key, quota=Limits(gpus=8)) for key in ("a1", "a2")]
    held = [running("one", 0, queue="b", let_in_s=1), running("two", 1, queue="b", let_in_s=2)]
    pools = [node(f"p{at}", labels={"pool": f"a{at}"}) for at in (1, 2)]
    waiting = [
        gang(f"x{at}", queue=f"a{at}", shape=shape(8, selector=(("pool", f"a{at}"),)), since_s=at) for at in (1, 2)
    ]
    there = state(waiting, [*full(held, 2), *pools], held, [*owners, replace(COHORT[1], quota=Limits(gpus=0))])
    decision = decide(there)
    assert decision.preempt == (Preempt("two", "x1"),)
    assert decide(after(there, decision)).preempt == ()


def test_nobody_preempts_on_nodes_that_are_kept() -> None:
    """What the victim frees would not be the other's."""
    held = [running("low", 0, queue="p"), running("other", 1)]
    large = gang("large", 2, since_s=0, reserved=True)
    queues = [Queue(key="q"), replace(WITHIN, key="p")]
    there = state([large, gang("x", queue="p", priority=5)], full(held, 2), held, queues)
    assert decide(there).preempt == ()
    assert len(decide(replace(there, waiting=there.waiting[1:])).preempt) == 1


JOBS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([2, 4, 8]), st.integers(0, 3), st.sampled_from(["a", "b"])),
    min_size=1,
    max_size=10,
)


@given(there=JOBS, asked=JOBS, seed=st.integers(0, 2**32))
@settings(max_examples=examples(300))
def test_preemption_takes_no_more_than_needed(
    there: list[tuple[int, int, int, str]], asked: list[tuple[int, int, int, str]], seed: int
) -> None:
    """With all victims gone the gang fits; with any one of them back it does not."""
    rng = random.Random(seed)
    queues = tuple(replace(queue, quota=Limits(gpus=24), preemption=Preemption.RECLAIM) for queue in COHORT)
    first = [gang(f"r{at}", p, g, queue=q, priority=prio) for at, (p, g, prio, q) in enumerate(there)]
    now = state(first, nodes(6), queues=queues)
    now = placed(after(now, decide(now)), rng)
    for at, (p, g, prio, q) in enumerate(asked):
        one = gang(f"w{at}", p, g, queue=q, priority=prio)
        decision = decide(replace(now, waiting=(one,)))
        gone = [given.key for given in decision.preempt]
        by_key = {held.key: held for held in now.holdings}
        assert not (gone and decision.let_in)
        for key in gone:
            lower = by_key[key].queue == q and by_key[key].priority < prio
            assert lower or by_key[key].queue != q
        if gone:
            assert _fits(now, one.key, gone, decision_for=one)
            assert not any(_fits(now, one.key, [key for key in gone if key != kept], decision_for=one) for kept in gone)


def _fits(now: State, key: str, gone: list[str], *, decision_for: Waiting) -> bool:
    without_them = replace(without(now, gone), waiting=(decision_for,), starts=())
    return key in let_in(decide(without_them))
