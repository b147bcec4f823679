"""Preemption beside quota that is promised to a gang that waits for its nodes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from gangs_waiting import NOW_S, after, gang, holding, let_in, node, shape, state, without

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Preempt, Why
from torchctl.controllers.coordinator.values import Holding, Limits, NodeInfo, PodShape, Preemption, Queue, State

WITHIN = Queue(key="q", preemption=Preemption.WITHIN_QUEUE, quota=Limits(gpus=16))
OTHER = Queue(key="other")


def pool(name: str, gpus: int = 8) -> PodShape:
    """Pods that choose the nodes of a pool."""
    return shape(gpus, selector=(("pool", name),))


def nodes(**used: int) -> list[NodeInfo]:
    """Nodes by name, the first letter of which is their pool, and the GPUs that are taken on them."""
    return [node(name, used=taken, labels={"pool": name[0]}) for name, taken in used.items()]


def running(
    key: str, name: str, *, gpus: int = 8, priority: int = -5, queue: str = "q", let_in_s: float = 1
) -> Holding:
    given = gang(key, 1, gpus, queue=queue, priority=priority, shape=pool(name[0], gpus))
    return holding(given, [(name, 1)], let_in_s=let_in_s)


def kept_and_high(queues: Sequence[Queue], held: Sequence[Holding], *, kept_in: str = "q", high: int = 8) -> State:
    """One gang waits for the full node of pool b, which another queue holds; one of as high a rank wants pool a."""
    used: dict[str, int] = {"b0": 8}
    for each in held:
        for name, _ in each.placed:
            used[name] = used.get(name, 0) + each.demand.gpus
    waiting = [
        gang("high", 1, high, since_s=1, priority=10, shape=pool("a", high)),
        gang("kept", since_s=2, priority=10, queue=kept_in, shape=pool("b"), reserved=True),
    ]
    return state(waiting, nodes(**used), [*held, running("runs", "b0", queue="other")], [*queues, OTHER])


def test_lower_priority_leaves_beside_promised_quota() -> None:
    """The quota is enough for both if the gang of low priority leaves."""
    there = kept_and_high([WITHIN], [running("low", "a0")])
    decision = decide(there)
    assert decision.preempt == (Preempt("low", "high"),)
    assert decision.reserved == ("high", "kept")
    assert {told.key: told.why for told in decision.told} == {"high": Why.PREEMPTING, "kept": Why.NODES}


def test_both_get_their_quota_once_the_victim_is_gone() -> None:
    """Nobody else of the queue takes what was freed, and nobody leaves twice."""
    now = kept_and_high([WITHIN], [running("low", "a0")])
    now = after(now, decide(now))
    leaving = decide(now)
    assert (leaving.preempt, leaving.let_in, leaving.reserved) == ((), (), ("high", "kept"))
    rival = gang("rival", since_s=3, priority=10, shape=pool("a"))
    now = without(after(now, leaving), ["low"])
    free = decide(replace(now, waiting=(*now.waiting, rival)))
    assert (let_in(free), free.preempt, free.reserved) == (["high"], (), ("kept",))
    now = without(after(now, free), ["runs"])
    assert let_in(decide(now)) == ["kept"]


def test_promised_quota_makes_no_more_leave_than_needed() -> None:
    held = [running("early", "a0", let_in_s=1), running("late", "a1", let_in_s=2)]
    roomy = replace(WITHIN, quota=Limits(gpus=24))
    assert decide(kept_and_high([roomy], held)).preempt == (Preempt("late", "high"),)


@pytest.mark.parametrize("priority", [10, 11])
def test_equal_ranks_stay_beside_promised_quota(priority: int) -> None:
    decision = decide(kept_and_high([WITHIN], [running("same", "a0", priority=priority)]))
    told = {told.key: told for told in decision.told}
    assert decision.preempt == ()
    assert (told["high"].message, told["high"].waits_for) == ("job kept waits for quota, which is kept for it", "kept")


def test_nobody_leaves_if_promised_quota_stays_short() -> None:
    """The gang of low priority holds less than what is missing."""
    tight = replace(WITHIN, quota=Limits(gpus=20))
    decision = decide(kept_and_high([tight], [running("low", "a0", gpus=4), running("x", "a1", priority=10)]))
    assert decision.preempt == ()


def test_lower_priority_leaves_beside_a_promise_in_its_cohort() -> None:
    """With it gone, the gang takes nothing that another queue owns."""
    queues = [replace(WITHIN, quota=Limits(gpus=8), cohort="c"), Queue(key="r", cohort="c", quota=Limits(gpus=8))]
    decision = decide(kept_and_high(queues, [running("low", "a0")], kept_in="r"))
    assert decision.preempt == (Preempt("low", "high"),)


def test_lower_priority_leaves_while_the_cohort_lends_nothing() -> None:
    """A gang of another queue waits for quota that is its own: whoever stays within his may go on."""
    queues = [replace(WITHIN, quota=Limits(gpus=8), cohort="c"), Queue(key="r", cohort="c", quota=Limits(gpus=8))]
    held = [running("low", "a0"), running("same", "a1", gpus=4, priority=10)]
    there = kept_and_high(queues, held, high=4)
    owner = gang("owner", since_s=0, queue="r", shape=pool("a"))
    decision = decide(replace(there, waiting=(there.waiting[0], owner), now_s=NOW_S))
    assert decision.preempt == (Preempt("low", "high"),)
