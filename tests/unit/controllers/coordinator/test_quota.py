"""Quotas of queues, cohorts and namespaces: asked before, so that no gang is half refused, and never exceeded."""

import random
from dataclasses import replace

import pytest
from effort import examples
from gangs_waiting import GPU, NOW_S, after, gang, holding, let_in, nodes, placed, state, without
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Why
from torchctl.controllers.coordinator.values import Demand, Limits, NamespaceQuota, Preemption, Queue
from torchctl.controllers.settings import CoordinatorSettings


def queue(key: str = "q", gpus: int | None = None, **more: object) -> Queue:
    return Queue(key=key, quota=Limits(gpus=gpus), **more)  # type: ignore[arg-type] # the tests' own keywords


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(gpus=12), "the job takes 8 GPUs, and queue q has 4 GPUs of its quota left"),
        (Limits(cpus=1500), "the job takes 1 CPU, and queue q has 500m CPU of its quota left"),
        (Limits(memory=3 * 2**30), "the job takes 2Gi memory, and queue q has 1Gi memory of its quota left"),
        (Limits(jobs=1), "the job takes 1 job, and queue q has 0 jobs of its quota left"),
    ],
)
def test_each_quota_of_a_queue_counts_what_its_gangs_hold(limits: Limits, message: str) -> None:
    demand = Demand(gpus=8, cpus=1000, memory=2 * 2**30)
    first = replace(holding(gang("a"), [("n0", 1)]), demand=demand)
    second = replace(gang("b"), demand=demand)
    decision = decide(state([second], nodes(4), [first], [Queue(key="q", quota=limits)]))
    assert let_in(decision) == []
    assert (decision.told[0].why, decision.told[0].message) == (Why.QUOTA, message)


def test_a_gang_above_its_quota_hears_so_at_once() -> None:
    (told,) = decide(state([gang("a", 2)], nodes(4), queues=[queue(gpus=8)])).told
    assert told.why is Why.NEVER_FITS
    assert told.message == (
        "the job takes 16 GPUs, and queue q may hold 8 GPUs in all: ask for less, or raise quota.gpus"
    )


def test_max_nodes_bounds_one_job() -> None:
    (told,) = decide(state([gang("a", 3)], nodes(4), queues=[queue(max_nodes=2)])).told
    assert told.why is Why.NEVER_FITS
    assert told.message == "the job has 3 nodes, and queue q allows 2 per job: ask for less, or raise maxNodes"


def test_a_job_of_no_queue_waits() -> None:
    (told,) = decide(state([gang("a", queue="gone")], nodes(4))).told
    assert (told.why, told.message) == (Why.NO_QUEUE, "there is no TorchrunQueue gone")


def test_a_resource_quota_of_the_namespace_is_asked_before() -> None:
    there = {f"requests.{GPU}": 20, "pods": 4}
    quota = NamespaceQuota(namespace="team", name="compute", hard=there, left={**there, "pods": 3})
    asked = ((f"requests.{GPU}", 16), ("pods", 2))
    waiting = [gang("a", 2, since_s=1, namespace_demand=asked), gang("b", 2, since_s=2, namespace_demand=asked)]
    decision = decide(state(waiting, nodes(8), namespace_quotas=(quota,)))
    assert let_in(decision) == ["a"]
    assert decision.told[0].message == (
        "the job takes 16 nvidia.com/gpu of ResourceQuota compute, which has 4 nvidia.com/gpu left"
    )
    being_made = holding(gang("a", 2), pending_namespace_demand=asked)
    assert let_in(decide(state(waiting[1:], nodes(8), [being_made], namespace_quotas=(quota,)))) == []


def test_a_job_above_a_resource_quota_holds_up_nobody() -> None:
    """However long it waits, the quota is not kept for it."""
    quota = NamespaceQuota(namespace="team", name="few", hard={"pods": 4}, left={"pods": 4})
    huge = gang("huge", 8, since_s=0, namespace_demand=(("pods", 8),))
    small = [gang(f"s{at}", 1, since_s=NOW_S, namespace_demand=(("pods", 1),)) for at in range(3)]
    decision = decide(state([huge, *small], nodes(8), namespace_quotas=(quota,)))
    assert let_in(decision) == ["s0", "s1", "s2"]
    assert decision.told[0].why is Why.NEVER_FITS
    assert decision.told[0].message == (
        "the job takes 8 pods, and ResourceQuota few allows 4 pods in all: ask for less, or raise it"
    )


@pytest.mark.parametrize(("counted", "is_told"), [("limits.memory", True), ("requests.memory", False)])
def test_a_job_hears_what_its_containers_have_to_name(counted: str, is_told: bool) -> None:
    """The API server would refuse its pods again and again."""
    quota = NamespaceQuota(namespace="team", name="compute", hard={counted: 2**40}, left={counted: 2**40})
    lacks = gang("lacks", unnamed=(("limits.memory", "trainer, exporter"),))
    decision = decide(state([lacks], nodes(1), namespace_quotas=(quota,)))
    assert bool(decision.let_in) is not is_told
    assert [(told.why, told.message) for told in decision.told] == is_told * [
        (
            Why.NEVER_FITS,
            "ResourceQuota compute counts limits.memory, and containers of the job do not name it (trainer, exporter), "
            "so the API server refuses its pods: set resources.limits.memory of each of them in podTemplate, or have a "
            "LimitRange of the namespace give defaults",
        )
    ]


def test_a_cohort_lends_what_it_does_not_use() -> None:
    queues = [queue("a", 8, cohort="c"), queue("b", 8, cohort="c")]
    assert let_in(decide(state([gang("x", 2, queue="a")], nodes(4), queues=queues))) == ["x"]
    busy = holding(gang("y", 1, queue="b"), [("n0", 1)])
    (told,) = decide(state([gang("x", 2, queue="a")], nodes(4), [busy], queues)).told
    assert told.message == "the job takes 16 GPUs, and cohort c has 8 GPUs of its quota left"


def test_borrowing_has_a_limit() -> None:
    queues = [queue("a", 8, cohort="c", borrowing=Limits(gpus=0)), queue("b", 80, cohort="c")]
    (told,) = decide(state([gang("x", 2, queue="a")], nodes(4), queues=queues)).told
    assert told.why is Why.NEVER_FITS


def test_a_queue_saves_quota_for_a_long_wait() -> None:
    """Else jobs of one GPU would take every GPU that becomes free, for ever."""
    running = holding(gang("small", 1, 1), [("n0", 1)])
    large, next_ = gang("large", 1, 8, since_s=0), gang("next", 1, 1, since_s=1)
    there = state([large, next_], nodes(4), [running], [queue(gpus=8)])
    patient = replace(there, settings=CoordinatorSettings(reserve_after_s=NOW_S + 1))
    assert let_in(decide(patient)) == ["next"]
    decision = decide(there)
    assert let_in(decision) == []
    assert (decision.told[1].waits_for, decision.told[1].message) == (
        "large",
        "job large waits for quota, which is kept for it",
    )


def test_a_cohort_lends_nothing_while_an_owner_waits_long() -> None:
    queues = [queue("a", 8, cohort="c"), queue("b", 16, cohort="c"), queue("z", 8, cohort="c")]
    borrower = holding(gang("r", 3, queue="a"), [("n0", 1), ("n1", 1), ("n2", 1)])
    owner = gang("owner", 2, queue="b", since_s=0)
    more = gang("more", 1, 1, queue="a", since_s=NOW_S)
    there = state([owner, more], nodes(8), [borrower], queues)
    assert let_in(decide(replace(there, settings=CoordinatorSettings(reserve_after_s=NOW_S + 1)))) == ["more"]
    assert let_in(decide(there)) == []


def test_a_gang_that_must_borrow_does_not_starve_its_queue() -> None:
    """Queue b uses what it owns; keeping what a owns would not help the large gang, and idle eight GPUs."""
    queues = [queue("a", 8, cohort="c"), queue("b", 8, cohort="c")]
    owner = holding(gang("owner", 1, queue="b"), [("n0", 1)])
    large, next_ = gang("large", 2, queue="a", since_s=0), gang("next", 1, queue="a")
    assert let_in(decide(state([large, next_], nodes(4), [owner], queues))) == ["next"]
    # Once b has ended, gangs of a are all that the large one waits for.
    own = holding(gang("own", 1, 4, queue="a"), [("n0", 1)])
    assert let_in(decide(state([large, replace(next_, pods=1)], nodes(4), [own], queues))) == []


def test_a_keeper_of_quota_does_not_wait_for_itself() -> None:
    """Although it asks for the same as one before it in its queue, which is of higher priority and younger."""
    quota = NamespaceQuota(namespace="team", name="few", hard={"pods": 4}, left={"pods": 1})
    asked = (("pods", 2),)
    urgent = gang("urgent", 2, priority=1, namespace_demand=asked)
    keeper = gang("keeper", 2, since_s=0, namespace_demand=asked, reserved=True, shape=urgent.shape)
    told = decide(state([urgent, keeper], nodes(4), namespace_quotas=(quota,))).told
    assert [(given.key, given.waits_for) for given in told] == [("urgent", "keeper"), ("keeper", "")]


QUEUES = st.lists(
    st.tuples(st.sampled_from([None, 4, 8, 16, 24]), st.sampled_from(["", "c", "d"]), st.sampled_from([None, 0, 8])),
    min_size=1,
    max_size=4,
)
GANGS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 8]), st.integers(0, 3)), min_size=1, max_size=16)


@given(drawn=QUEUES, gangs=GANGS, preemption=st.sampled_from(Preemption), seed=st.integers(0, 2**32))
@settings(max_examples=examples(200))
def test_no_quota_is_ever_exceeded(
    drawn: list[tuple[int | None, str, int | None]],
    gangs: list[tuple[int, int, int]],
    preemption: Preemption,
    seed: int,
) -> None:
    """Through lettings-in, ends and preemptions."""
    rng = random.Random(seed)
    queues = [
        Queue(key=f"q{at}", quota=Limits(gpus=g), cohort=c, borrowing=Limits(gpus=b), preemption=preemption)
        for at, (g, c, b) in enumerate(drawn)
    ]
    waiting = [
        gang(f"g{at}", p, g, queue=f"q{q % len(queues)}", since_s=float(at), priority=rng.randrange(3))
        for at, (p, g, q) in enumerate(gangs)
    ]
    now = state(waiting, nodes(6), queues=queues)
    for _ in range(12):
        decision = decide(now)
        now = placed(after(now, decision), rng)
        _check(queues, now.holdings)
        left = [held.key for held in now.holdings if held.leaving_for]
        if not decision.let_in and now.holdings and not left:
            left = [rng.choice(now.holdings).key]
        now = replace(without(now, left), now_s=now.now_s + 100)


def _check(queues: list[Queue], holdings: tuple[object, ...]) -> None:
    used = {q.key: 0 for q in queues}
    for held in holdings:
        used[held.queue] += held.demand.gpus  # type: ignore[attr-defined] # they are Holdings
    for q in queues:
        if q.quota.gpus is None:
            continue
        more = q.borrowing.gpus if q.cohort else 0
        assert more is None or used[q.key] <= q.quota.gpus + more
        members = [other for other in queues if other.cohort == q.cohort and other.quota.gpus is not None]
        if q.cohort:
            assert sum(used[other.key] for other in members) <= sum(other.quota.gpus or 0 for other in members)
