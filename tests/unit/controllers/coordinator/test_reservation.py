"""A reservation for the first gang that waits long, and backfill beside it."""

import random
from dataclasses import replace

import pytest
from effort import examples
from gangs_waiting import GPU, NOW_S, after, gang, holding, let_in, node, nodes, placed, shape, state, without
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Why
from torchctl.controllers.coordinator.values import (
    Holding,
    Limits,
    NamespaceQuota,
    NodeInfo,
    PodShape,
    Preemption,
    Queue,
    Requirement,
    Start,
    Turn,
    Waiting,
)
from torchctl.controllers.settings import CoordinatorSettings, PolicyName

LARGE = gang("large", 4, since_s=0)


def half(ends_s: float | None) -> tuple[tuple[NodeInfo, ...], tuple[Holding, ...]]:
    """Returns four nodes of which two are taken until then."""
    running = holding(gang("running", 2), [("n0", 1), ("n1", 1)], ends_s=ends_s)
    return (node("n0", used=8), node("n1", used=8), *nodes(4)[2:]), (running,)


def small(lasts_s: float | None = None, pods: int = 1, gpus: int = 8) -> Waiting:
    return gang("small", pods, gpus, since_s=NOW_S, lasts_s=lasts_s)


def test_before_the_bound_small_gangs_go_first() -> None:
    there, held = half(None)
    decision = decide(state([replace(LARGE, since_s=NOW_S - 599), small()], there, held))
    assert (let_in(decision), decision.reserved) == (["small"], ())


@pytest.mark.parametrize("ends_s", [None, NOW_S + 100])
def test_from_the_bound_on_room_is_kept(ends_s: float | None) -> None:
    there, held = half(ends_s)
    decision = decide(state([replace(LARGE, since_s=NOW_S - 600), small()], there, held))
    assert (let_in(decision), decision.reserved) == ([], ("large",))
    large, little = decision.told
    assert (large.why, large.estimate_s) == (Why.NODES, ends_s)
    assert (little.why, little.waits_for) == (Why.BEHIND, "large")
    assert little.message == "there is room, which is kept for job large: it waits longer"


@pytest.mark.parametrize(("lasts_s", "goes"), [(100.0, True), (101.0, False), (None, False)])
def test_backfill_ends_before_the_room_is_there(lasts_s: float | None, goes: bool) -> None:
    there, held = half(NOW_S + 100)
    assert (let_in(decide(state([LARGE, small(lasts_s)], there, held))) == ["small"]) is goes


def test_nothing_ends_before_an_end_that_nobody_knows() -> None:
    there, held = half(None)
    assert let_in(decide(state([LARGE, small(1.0)], there, held))) == []


@pytest.mark.parametrize(("pods", "goes"), [(1, True), (2, False)])
def test_backfill_fits_beside(pods: int, goes: bool) -> None:
    """Five nodes will be free and the large gang needs four."""
    there, held = half(None)
    assert (let_in(decide(state([LARGE, small(pods=pods)], (*there, node("n4")), held))) == ["small"]) is goes


def test_each_backfill_leaves_less_for_the_next() -> None:
    there, held = half(None)
    decision = decide(state([LARGE, small(), replace(small(), key="tiny")], (*there, node("n4")), held))
    assert let_in(decision) == ["small"]


def test_backfill_avoids_the_nodes_that_are_kept() -> None:
    """A pod of one GPU may be placed on any node: two of them might take two nodes of eight, so they are limited."""
    there, held = half(None)
    able = (*there, node("n4"))
    (one,) = decide(state([LARGE, small(pods=1, gpus=1)], able, held)).let_in
    (two,) = decide(state([LARGE, small(pods=2, gpus=1)], able, held)).let_in
    assert one.avoid == two.avoid == ("n0", "n1", "n2", "n3")
    assert let_in(decide(state([LARGE, small(pods=9, gpus=1)], able, held))) == []


def test_a_gang_goes_where_room_was_kept() -> None:
    """Else small gangs that come all the time would hold it up, because each might take one of the other nodes."""
    elsewhere = shape(1).needing(Requirement("metadata.name", "NotIn", ("n0", "n1")))
    busy = holding(gang("busy", 2, shape=elsewhere))
    large = gang("large", 2, since_s=0, reserved=True)
    (given_,) = decide(state([large], [*nodes(2), node("n2", used=4)], [busy])).let_in
    assert (given_.key, given_.only) == ("large", ("n0", "n1"))


def test_room_is_kept_beside_what_is_being_placed() -> None:
    """Pods that have no node yet may take the nodes that are free, so further ones are kept."""
    coming = holding(gang("coming", 1), has_run=False)
    there, held = half(None)
    decision = decide(state([replace(LARGE, pods=3), small()], (*there, node("n4")), [*held, coming]))
    assert (let_in(decision), decision.reserved) == ([], ("large",))


@pytest.mark.parametrize("ends_s", [None, NOW_S + 200])
def test_room_is_kept_while_others_might_be_placed_on_it(ends_s: float | None) -> None:
    """Its room is there once they have ended, as with any gang that runs."""
    coming = holding(gang("coming", 1), has_run=False, ends_s=ends_s)
    there, held = half(NOW_S + 100)
    decision = decide(state([replace(LARGE, reserved=True), small(100.0)], there, [*held, coming]))
    assert (decision.reserved, decision.told[0].estimate_s) == (("large",), ends_s)
    assert (let_in(decision) == ["small"]) is (ends_s is not None)


def test_avoided_nodes_leave_those_of_another_gang() -> None:
    """Room is kept in two pools; who was let in beside the first may be placed in the second, and is counted there."""
    pools = [replace(n, labels={"pool": "ab"[at // 2]}) for at, n in enumerate(nodes(4))]
    first = gang("first", 2, since_s=0, reserved=True, shape=shape(8, selector=(("pool", "a"),)))
    second = gang("second", 2, since_s=0, reserved=True, shape=shape(8, selector=(("pool", "b"),)))
    busy = holding(gang("busy", 1, 1, shape=shape(1, selector=(("pool", "a"),))), [("n0", 1)])
    taken = [replace(pools[0], used={GPU: 1}), *pools[1:]]
    decision = decide(state([first, second, small(gpus=1)], taken, [busy]))
    assert set(decision.reserved) <= {"first", "second"}
    for given_ in decision.let_in:
        assert given_.key == "second" or set(given_.avoid) >= {"n2", "n3"}


def test_other_nodes_are_nobody_s_concern() -> None:
    there, held = half(None)
    elsewhere = gang("cpu", 2, shape=shape(0, selector=(("pool", "cpu"),)))
    pool = node("c0", 0, labels={"pool": "cpu"})
    tainted = tuple(replace(n, labels={"pool": "gpu"}) for n in there)
    large = replace(LARGE, shape=shape(8, selector=(("pool", "gpu"),)))
    assert let_in(decide(state([large, elsewhere], (*tainted, pool), held))) == ["cpu"]


def test_a_recorded_reservation_stays_with_its_gang() -> None:
    """Whichever queue is next: else two large gangs could take the room from each other for ever."""
    there, held = half(None)
    second = gang("second", 4, queue="a", since_s=-1)
    queues = (Queue(key="a"), Queue(key="q"))
    assert decide(state([LARGE, second], there, held, queues)).reserved == ("second",)
    assert decide(state([replace(LARGE, reserved=True), second], there, held, queues)).reserved == ("large",)


def test_room_is_kept_for_the_next_after_a_reservation() -> None:
    """In the same decision: else a small gang would take a place between the two."""
    running = holding(gang("running", 1), [("n0", 1)])
    there = (node("n0", used=8), *nodes(4)[1:])
    waiting = [
        gang("large", 3, queue="b", since_s=-1),
        replace(gang("kept", 1, queue="a", since_s=0), reserved=True),
        gang("small", 1, 1, queue="c", since_s=NOW_S),
    ]
    queues = tuple(Queue(key=key) for key in "abcq")
    found = decide(
        replace(state(waiting, there, (running,), queues), settings=CoordinatorSettings(policy=PolicyName.FIFO))
    )
    assert let_in(found) == ["kept"]
    assert found.reserved == ("large",)


def test_no_room_is_kept_for_a_gang_without_quota() -> None:
    there, held = half(None)
    poor = replace(LARGE, namespace_demand=(("pods", 4),))

    quota = NamespaceQuota(namespace="team", name="few", hard={"pods": 4}, left={"pods": 2})
    assert decide(state([poor], there, held, namespace_quotas=(quota,))).reserved == ()


@pytest.mark.parametrize(
    ("queue", "lasts_s", "goes"),
    [("q", None, False), ("q", 101.0, False), ("q", 100.0, True), ("borrows", None, False), ("owns", None, True)],
)
def test_quota_is_kept_beside_the_room(queue: str, lasts_s: float | None, goes: bool) -> None:
    """A small gang of another pool: its own queue's, one that borrows, and one that takes back what it owns."""
    pool_a, pool_b = (shape(8, selector=(("pool", name),)) for name in "ab")
    there = [
        node("a0", used=8, labels={"pool": "a"}),
        node("a1", labels={"pool": "a"}),
        node("b0", labels={"pool": "b"}),
    ]
    running = holding(gang("running", queue="other", shape=pool_a), [("a0", 1)], ends_s=NOW_S + 100)
    large = gang("large", 2, since_s=0, reserved=True, shape=pool_a)
    little = gang("small", queue=queue, lasts_s=lasts_s, shape=pool_b)
    queues = (
        Queue(key="q", cohort="c", quota=Limits(gpus=8)),
        Queue(key="owns", cohort="c", quota=Limits(gpus=8)),
        Queue(key="borrows", cohort="c", quota=Limits(gpus=0)),
        Queue(key="other"),
    )
    decision = decide(state([large, little], there, [running], queues))
    assert decision.reserved == ("large",)
    assert let_in(decision) == (["small"] if goes else [])
    if not goes:
        told = {each.key: each.message for each in decision.told}
        assert told["small"] == "job large waits for quota, which is kept for it"


def test_two_promises_of_quota_hold_up_nobody_for_ever() -> None:
    """Each gang has room of its own to come, and there is quota for one at a time."""
    pools = [shape(8, selector=(("pool", name),)) for name in "ab"]
    there = [node(name, used=8, labels={"pool": name}) for name in "ab"]
    held = [
        holding(gang(f"run-{name}", queue="other", shape=at), [(name, 1)]) for name, at in zip("ab", pools, strict=True)
    ]
    waiting = [gang(f"wait-{name}", since_s=0, reserved=True, shape=at) for name, at in zip("ab", pools, strict=True)]
    queues = (Queue(key="q", quota=Limits(gpus=8)), Queue(key="other"))
    decision = decide(state(waiting, there, held, queues))
    assert (let_in(decision), decision.reserved) == ([], ("wait-a",))
    free = [node(name, labels={"pool": name}) for name in "ab"]
    assert let_in(decide(state(waiting, free, [], queues))) == ["wait-a"]


def pool(name: str) -> PodShape:
    """Pods that take a whole node of a pool."""
    return shape(8, selector=(("pool", name),))


def taken(name: str, ends_s: float | None = None) -> tuple[NodeInfo, Holding]:
    """The one node of a pool, and the gang of another queue that has it."""
    runs = holding(gang(f"run-{name}", queue="other", shape=pool(name)), [(name, 1)], ends_s=ends_s)
    return node(name, used=8, labels={"pool": name}), runs


def test_a_gang_hears_which_promise_keeps_it_out() -> None:
    """Quota of another queue is promised, too."""
    (full_a, run_a), (full_b, run_b) = taken("a"), taken("b")
    waiting = [
        gang("stranger", queue="x", since_s=0, reserved=True, shape=pool("a")),
        gang("large", since_s=1, reserved=True, shape=pool("b")),
        gang("small", shape=pool("c")),
    ]
    queues = (*(Queue(key=key, quota=Limits(gpus=8)) for key in "qx"), Queue(key="other"))
    decision = decide(state(waiting, [full_a, full_b, node("c", labels={"pool": "c"})], [run_a, run_b], queues))
    assert decision.reserved == ("large", "stranger")
    told = {each.key: each for each in decision.told}
    assert told["small"].message == "job large waits for quota, which is kept for it"
    assert told["small"].waits_for == "large"


def test_promised_quota_is_told_to_others_that_take_as_much() -> None:
    """What is kept for a gang does not keep that gang out, but all that are like it."""
    full, runs = taken("a")
    kept = gang("kept", since_s=1, reserved=True, shape=pool("a"))
    early, late = (replace(kept, key=key, since_s=since_s, reserved=False) for key, since_s in (("e", 0), ("l", 2)))
    queues = (Queue(key="q", quota=Limits(gpus=8)), Queue(key="other"))
    decision = decide(state([early, kept, late], [full], [runs], queues))
    assert {told.key: (told.why, told.waits_for) for told in decision.told} == {
        "e": (Why.QUOTA, "kept"),
        "kept": (Why.NODES, ""),
        "l": (Why.QUOTA, "kept"),
    }


def test_gangs_hear_of_promised_quota_only_if_they_delay_that() -> None:
    """It may have a deadline that others like it do not have."""
    (full_a, run_a), (full_b, run_b) = taken("a", NOW_S + 100), taken("b")
    endless = gang("endless", since_s=NOW_S - 2, shape=pool("b"))
    waiting = [gang("large", since_s=0, reserved=True, shape=pool("a")), endless]
    waiting.append(replace(endless, key="short", since_s=NOW_S - 1, lasts_s=50.0))
    queues = (Queue(key="q", quota=Limits(gpus=8)), Queue(key="other"))
    decision = decide(state(waiting, [full_a, full_b], [run_a, run_b], queues))
    assert [(told.key, told.why) for told in decision.told] == [
        ("large", Why.NODES),
        ("endless", Why.QUOTA),
        ("short", Why.NODES),
    ]


def test_no_room_is_kept_if_another_takes_the_quota_back() -> None:
    """Nobody knows when that one has room, and the node would stand empty until then."""
    full, runs = taken("a")
    waiting = [
        gang("borrower", queue="borrows", since_s=0, reserved=True, shape=pool("b")),
        gang("owner", queue="owns", since_s=1, reserved=True, shape=pool("a")),
        gang("free", queue="other", shape=pool("b")),
    ]
    queues = (
        Queue(key="owns", cohort="c", quota=Limits(gpus=8)),
        Queue(key="borrows", cohort="c", quota=Limits(gpus=0)),
        Queue(key="other"),
    )
    decision = decide(state(waiting, [full, node("b", labels={"pool": "b"})], [runs], queues))
    assert (let_in(decision), decision.reserved) == (["free"], ("owner",))


@pytest.mark.parametrize(("priority", "goes"), [(1, True), (0, False), (-1, False)])
def test_a_higher_priority_waits_for_no_promise_of_its_queue(priority: int, goes: bool) -> None:
    """Nobody knows when the large gang has room, and lower priorities wait for higher ones of their queue."""
    full, runs = taken("a")
    waiting = [
        gang("large", since_s=0, reserved=True, shape=pool("a")),
        gang("small", shape=pool("b"), priority=priority),
    ]
    queues = (Queue(key="q", quota=Limits(gpus=8)), Queue(key="other"))
    decision = decide(state(waiting, [full, node("b", labels={"pool": "b"})], [runs], queues))
    assert let_in(decision) == (["small"] if goes else [])


def test_promised_quota_is_what_others_leave_for_it() -> None:
    """It counts once, so that another reservation beside it stays while they leave."""
    full, runs = taken("a")
    leaves = holding(gang("leaves", shape=pool("b"), priority=-1), [("b", 1)], leaving_for="higher")
    waiting = [
        gang("large", since_s=0, reserved=True, shape=pool("a")),
        gang("higher", shape=pool("b"), priority=1),
    ]
    queues = (Queue(key="q", quota=Limits(gpus=16)), Queue(key="other"))
    decision = decide(state(waiting, [full, node("b", used=8, labels={"pool": "b"})], [runs, leaves], queues))
    assert (let_in(decision), decision.reserved) == ([], ("higher", "large"))


def test_room_that_foreign_pods_hold_is_not_waited_for() -> None:
    """They do not belong to gangs, so nothing says that they end: small gangs go on."""
    there = (node("n0", used=8), node("n1", used=8), *nodes(4)[2:])
    decision = decide(state([LARGE, small()], there))
    assert (let_in(decision), decision.reserved) == (["small"], ())


@given(seed=st.integers(0, 2**32), preemption=st.sampled_from([*Preemption]))
@settings(max_examples=examples(150))
def test_a_reservation_lasts_until_its_gang_is_let_in(seed: int, preemption: Preemption) -> None:
    """Whatever is being placed meanwhile. All nodes are the coordinator's, and every gang fits by the quotas."""
    rng = random.Random(seed)
    queues = tuple(Queue(key=key, preemption=preemption) for key in "qr")
    pools = [replace(n, labels={"pool": rng.choice("ab")}) for n in nodes(rng.randint(1, 5), 4)]
    now = replace(state((), pools, (), queues), settings=CoordinatorSettings(reserve_after_s=rng.choice([0, 5])))
    for number in range(40):
        waiting = now.waiting if len(now.waiting) > 6 else (*now.waiting, _any_gang(rng, f"g{number}", now.now_s))
        now = replace(now, waiting=waiting, now_s=now.now_s + rng.randint(0, 5))
        decision = decide(now)
        before = {given.key for given in now.waiting if given.reserved}
        assert before <= {*let_in(decision), *decision.reserved}
        now = placed(after(now, decision), rng, pods=rng.choice([0, 0, 1, 2, None]))
        ended = [held.key for held in now.holdings if held.leaving_for or rng.random() < 0.1]
        now = without(now, rng.sample(ended, rng.randint(0, len(ended))))


def _any_gang(rng: random.Random, key: str, now_s: float) -> Waiting:
    pool = rng.choice(["", "a", "b"])
    return gang(
        key,
        rng.randint(1, 5),
        queue=rng.choice("qr"),
        since_s=now_s,
        priority=rng.randint(0, 2),
        lasts_s=rng.choice([None, 10.0, 50.0]),
        shape=shape(rng.choice([1, 2, 4]), selector=(("pool", pool),) if pool else ()),
    )


@given(seed=st.integers(0, 2**32), policy=st.sampled_from([*PolicyName]))
@settings(max_examples=examples(25))
def test_a_large_gang_starts_however_many_small_ones_come(seed: int, policy: PolicyName) -> None:
    """An endless stream that keeps the nodes full; without a reservation the large gang would never start."""
    rng = random.Random(seed)
    given_settings = CoordinatorSettings(policy=policy, reserve_after_s=50)
    now = state([LARGE], nodes(4), queues=(Queue(key="q"), Queue(key="s", weight=5)), settings=given_settings)
    now = replace(now, waiting=(replace(LARGE, since_s=NOW_S + 20),))
    number = 0
    for _ in range(200):
        while len(now.waiting) < 20:
            number += 1
            queue, size = rng.choice("qs"), rng.choice([1, 2, 4, 8])
            lasts_s = rng.choice([None, 20.0, 200.0])
            new = gang(f"g{number}", 1, size, queue=queue, since_s=now.now_s, lasts_s=lasts_s)
            now = replace(now, waiting=(*now.waiting, new))
        decision = decide(now)
        if "large" in let_in(decision):
            return
        now = placed(after(now, decision), rng)
        ended = [held.key for held in now.holdings if rng.random() < 0.2 or (held.ends_s or 1e9) <= now.now_s + 10]
        now = replace(without(now, ended), now_s=now.now_s + 10)
    raise AssertionError("the large gang never started")


@given(
    weights=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=examples(15))
def test_starts_of_a_full_cluster_follow_the_weights(weights: list[int], seed: int) -> None:
    """All queues always have work, one pod ends at a time, and each decision begins from what is recorded."""
    rng = random.Random(seed)
    queues = tuple(Queue(key=f"q{at}", weight=weight) for at, weight in enumerate(weights))
    now, number, started = state([], nodes(2), queues=queues), 0, list[str]()
    rounds = 6
    while len(started) < rounds * sum(weights) + 2:
        for queue in queues:
            while sum(w.queue == queue.key for w in now.waiting) < 3:
                number += 1
                now = replace(now, waiting=(*now.waiting, gang(f"g{number}", queue=queue.key, since_s=now.now_s)))
        decision = decide(now)
        started += [given.queue for given in decision.let_in]
        now = placed(after(now, decision), rng)
        now = replace(without(now, [rng.choice(now.holdings).key]), now_s=now.now_s + 1)
    for queue in queues:
        assert abs(started.count(queue.key) - len(started) * queue.weight / sum(weights)) <= 2


def test_each_gang_hears_its_place() -> None:
    waiting = [gang("b", since_s=2), gang("a", since_s=1), gang("c", since_s=3, priority=1)]
    told = decide(state(waiting, [node("n", used=8)])).told
    assert [(given.key, given.place) for given in told] == [("c", 1), ("a", 2), ("b", 3)]


def test_an_estimate_comes_from_how_often_the_queue_starts_jobs() -> None:

    starts = tuple(Start("q", NOW_S - 60 * at, Turn()) for at in (1, 2, 3))
    full = [node("n", used=8, labels={GPU: "yes"})]
    told = decide(state([gang("a", since_s=1), gang("b", since_s=2)], full, starts=starts)).told
    assert [given.estimate_s for given in told] == [NOW_S + 60, NOW_S + 120]
    assert decide(state([gang("a", since_s=1)], full, starts=starts[:2])).told[0].estimate_s is None


def test_nodes_kept_once_more_count_what_was_let_in_there() -> None:
    """The pods of the gang that they were kept for before are not placed yet."""
    there = [node(f"n{at}", used=8 * (at > 1), labels={"pool": "a"}) for at in range(4)]
    there.append(node("n4", labels={"pool": "b"}))
    runs = holding(gang("runs", 2, queue="other"), [("n2", 1), ("n3", 1)], ends_s=NOW_S + 1000)
    starts = holding(gang("starts", queue="other", shape=pool("b")))
    waiting = [
        gang("first", 2, queue="a", since_s=0, reserved=True),
        gang("second", 2, queue="b", since_s=1),
        gang("short", 1, 4, queue="c", lasts_s=10.0, shape=shape(4, selector=(("pool", "a"),))),
    ]
    queues = [Queue(key=key) for key in ("a", "b", "c", "other")]
    decision = decide(state(waiting, there, [runs, starts], queues))
    assert [(given.key, given.only) for given in decision.let_in] == [("first", ("n0", "n1"))]
    assert decision.reserved == ("second",)
