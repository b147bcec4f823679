"""The order of the queues: sequences, shares, empty queues, and the state that follows from what is recorded."""

from collections import Counter
from collections.abc import Mapping

import pytest
from effort import examples
from gangs_waiting import NOW_S, gang, let_in, node, nodes, state
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.policies import Candidate, policy
from torchctl.controllers.coordinator.policies.smooth import MOST_OWED
from torchctl.controllers.coordinator.turns import Turns
from torchctl.controllers.coordinator.values import Queue, Start, Turn, Waiting
from torchctl.controllers.settings import CoordinatorSettings, PolicyName

SMOOTH, WEIGHTED = PolicyName.SMOOTH_WEIGHTED_ROUND_ROBIN, PolicyName.WEIGHTED_ROUND_ROBIN
WEIGHTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 20), min_size=1, max_size=6)


def candidates(weights: Mapping[str, int], since_s: Mapping[str, float] | None = None) -> list[Candidate]:
    return [Candidate(name, weight, (since_s or {}).get(name, 0.0), 0, 0.0) for name, weight in weights.items()]


class Play:
    """Picks queue after queue, a second each, and begins anew from what is recorded as often as is asked."""

    def __init__(self, name: PolicyName, *, every: int = 10**9) -> None:
        self.name, self.every, self.starts, self.now_s = name, every, list[Start](), 1.0
        self.policy = policy(name, ())

    def pick(self, weights: Mapping[str, int], since_s: Mapping[str, float] | None = None) -> str:
        if len(self.starts) % self.every == 0:
            self.policy = policy(self.name, reversed(self.starts))
        able = candidates(weights, since_s)
        chosen = self.policy.pick(able)
        self.starts.append(Start(chosen.queue, self.now_s, self.policy.charge(chosen, able)))
        self.now_s += 1
        return chosen.queue

    def picks(self, weights: Mapping[str, int], count: int) -> str:
        return "".join(self.pick(weights) for _ in range(count))


def nginx(weights: Mapping[str, int], count: int) -> str:
    """The rule as nginx states it, with a number in memory for each queue."""
    current, picks = dict.fromkeys(weights, 0), ""
    for _ in range(count):
        for name, weight in weights.items():
            current[name] += weight
        best = min(current, key=lambda name: (-current[name], name))
        current[best] -= sum(weights.values())
        picks += best
    return picks


@pytest.mark.parametrize("every", [1, 3, 100])
def test_smooth_weights_of_5_1_1_give_aabacaa(every: int) -> None:
    """Also if the leader changes after each start."""
    assert Play(SMOOTH, every=every).picks({"a": 5, "b": 1, "c": 1}, 14) == "aabacaa" * 2


@pytest.mark.parametrize("every", [1, 3, 100])
def test_weights_of_5_1_1_give_aaaaabc_in_rounds(every: int) -> None:
    assert Play(WEIGHTED, every=every).picks({"a": 5, "b": 1, "c": 1}, 14) == "aaaaabc" * 2


@given(weights=WEIGHTS, every=st.integers(1, 7))
@settings(max_examples=examples(60))
def test_smooth_order_is_nginx_order(weights: dict[str, int], every: int) -> None:
    count = 3 * sum(weights.values())
    assert Play(SMOOTH, every=every).picks(weights, count) == nginx(weights, count)


def test_turns_stay_in_status_for_46_million_starts() -> None:
    """A lone queue of weight 1 takes the longest steps."""
    alone = candidates({"a": 1})
    step = policy(SMOOTH, ()).charge(alone[0], alone)
    assert 46_000_000 * max(step) < 2**62  # the bound of the CRD


@pytest.mark.parametrize("name", [SMOOTH, WEIGHTED])
def test_a_queue_of_weight_0_stops_nobody(name: PolicyName) -> None:
    queues = [Queue(key="a", weight=0), Queue(key="b")]
    waiting = [gang(f"{queue}{at}", 1, queue=queue) for queue in "ab" for at in range(2)]
    assert len(let_in(decide(state(waiting, nodes(4), queues=queues, settings=CoordinatorSettings(policy=name))))) == 4


@pytest.mark.parametrize("name", [SMOOTH, WEIGHTED])
@given(weights=WEIGHTS)
@settings(max_examples=examples(40))
def test_shares_are_the_weights(name: PolicyName, weights: dict[str, int]) -> None:
    rounds = 4
    found = Counter(Play(name).picks(weights, rounds * sum(weights.values())))
    assert found == {queue: rounds * weight for queue, weight in weights.items()}


@pytest.mark.parametrize("name", [SMOOTH, WEIGHTED])
@given(data=st.data())
@settings(max_examples=examples(40))
def test_nobody_with_work_is_passed_over_for_ever(name: PolicyName, data: st.DataObject) -> None:
    """Whatever the others do: a queue that always has work starts within a bounded number of turns."""
    weights = data.draw(WEIGHTS.filter(lambda weights: len(weights) > 1))
    steady = min(weights)
    play, passed, since_s = Play(name, every=1), 0, dict.fromkeys(weights, 0.0)
    bound = (MOST_OWED + 2) * len(weights) * sum(weights.values())
    before = {steady}
    turns = 3 * sum(weights.values())
    for others in data.draw(st.binary(min_size=turns, max_size=turns)):
        active = {steady} | {queue for place, queue in enumerate(sorted(weights)) if others >> place & 1}
        since_s |= dict.fromkeys(active - before, play.now_s)
        before = active
        chosen = play.pick({queue: weights[queue] for queue in active}, since_s)
        passed = 0 if chosen == steady else passed + 1
        assert passed <= bound


def test_idling_earns_nothing() -> None:
    """A queue that comes back after a long pause gets its share from then on, and no more."""
    play = Play(SMOOTH, every=1)
    play.picks({"a": 1, "b": 1}, 4)
    for _ in range(100):
        play.pick({"a": 1})
    back_s = {"a": 0.0, "b": play.now_s - 0.5}
    found = [play.pick({"a": 1, "b": 1}, back_s) for _ in range(10)]
    assert sorted(found) == ["a"] * 5 + ["b"] * 5
    assert "bb" not in "".join(found)


def test_a_job_that_can_never_start_earns_no_turns() -> None:
    """Queue b has had nothing else for long: it comes back as if it had been empty."""
    starts = [Start("b", 1.0, Turn(1, 1)), *(Start("a", 10.0 + at, Turn(at * 10**11, at * 10**11)) for at in range(9))]
    parked = gang("parked", 99, queue="b", since_s=0, priority=1)
    waiting = [gang(f"{queue}{at}", queue=queue, since_s=100.0 + at) for queue in "ab" for at in range(6)]
    queues = [Queue(key="a"), Queue(key="b")]
    decision = decide(state([parked, *waiting], nodes(6), queues=queues, starts=starts))
    assert sorted(let_in(decision)) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_an_empty_queue_gives_its_turns_to_the_others() -> None:
    play = Play(SMOOTH, every=1)
    assert Counter(play.picks({"a": 2, "b": 1}, 9)) == {"a": 6, "b": 3}
    assert set(play.picks({"b": 1}, 3)) == {"b"}


def test_a_queue_that_was_held_up_catches_up_within_bounds() -> None:
    """It has waited all the time without being able to start anything."""
    play = Play(SMOOTH, every=1)
    play.picks({"a": 1, "b": 1}, 2)
    for _ in range(1000):
        play.pick({"a": 1})
    found = "".join(play.pick({"a": 1, "b": 1}) for _ in range(40))
    assert len(found) - len(found.lstrip("b")) <= MOST_OWED + 1
    assert Counter(found)["a"] >= (40 - MOST_OWED) // 2 - 1


def test_priority_goes_by_the_first_gangs() -> None:
    chosen = policy(PolicyName.PRIORITY, ())
    low, high = Candidate("a", 9, 0.0, 1, 0.0), Candidate("b", 1, 0.0, 2, 5.0)
    older = Candidate("c", 1, 0.0, 2, 4.0)
    assert chosen.pick([low, high]) == high
    assert chosen.pick([low, high, older]) == older


def test_fifo_goes_by_who_waits_longest() -> None:
    first, second = Candidate("b", 1, 0.0, 0, 1.0), Candidate("a", 9, 0.0, 9, 2.0)
    assert policy(PolicyName.FIFO, ()).pick([second, first]) == first


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        ([gang("big", 3, queue="a", since_s=0)], ["old", "young"]),
        ([gang("first", queue="a", since_s=0), gang("huge", 9, queue="a", since_s=1)], ["first", "old"]),
    ],
)
def test_fifo_holds_across_queues_if_a_gang_does_not_fit(ahead: list[Waiting], expected: list[str]) -> None:
    """Whether it can never fit or only not now: the next gang of its queue has its own age."""
    waiting = [*ahead, gang("young", queue="a", since_s=90), gang("old", queue="b", since_s=50)]
    there = [node("n0"), node("n1"), node("n2", used=8)]
    chosen = CoordinatorSettings(policy=PolicyName.FIFO, reserve_after_s=NOW_S + 1)
    assert let_in(decide(state(waiting, there, queues=[Queue(key="a"), Queue(key="b")], settings=chosen))) == expected


@pytest.mark.parametrize("pods", [9, 2])
def test_priority_holds_across_queues_if_a_gang_does_not_fit(pods: int) -> None:
    waiting = [
        gang("big", pods, queue="a", priority=9),
        gang("low", queue="a", since_s=0),
        gang("mid", queue="b", priority=5),
    ]
    there = [node("n0"), node("n1", used=8)]
    chosen = CoordinatorSettings(policy=PolicyName.PRIORITY)
    assert let_in(decide(state(waiting, there, queues=[Queue(key="a"), Queue(key="b")], settings=chosen))) == ["mid"]


def test_a_cohort_with_a_policy_is_one_queue() -> None:
    """b and c share a cohort that goes by rounds; together they have twice the weight of a."""
    queues = {name: Queue(key=name, weight=1, cohort="" if name == "a" else "bc") for name in "abc"}
    chosen_settings, starts, found = CoordinatorSettings(cohort_policies={"bc": WEIGHTED}), list[Start](), ""
    for at in range(12):
        turns, able = Turns(chosen_settings, queues, starts), candidates(dict.fromkeys("abc", 1))
        chosen = turns.pick(able)
        starts.append(Start(chosen.queue, float(at), *turns.charge(chosen, able)))
        found += chosen.queue
    assert Counter(found) == {"a": 4, "b": 4, "c": 4}
    assert found.replace("a", "") == "bcbcbcbc"
