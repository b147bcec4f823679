"""Times that a clock far ahead has recorded: nobody waits until the others have caught up with it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from gangobjects import NOW, QUEUED, a_job, record, seen
from gangs_waiting import NOW_S, gang, holding, let_in, node, nodes, state
from hypothesis import given
from hypothesis import strategies as st

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import TakeBack, Why
from torchctl.controllers.coordinator.policies import policy
from torchctl.controllers.coordinator.policies.policy import Candidate
from torchctl.controllers.coordinator.policies.smooth import MOST_OWED
from torchctl.controllers.coordinator.tell import pace
from torchctl.controllers.coordinator.values import LONGEST_PAUSE_S, Start, Turn
from torchctl.controllers.settings import PolicyName

YEAR_S = 365 * 86_400.0


def test_half_placed_gang_loses_its_place_whatever_the_clock() -> None:
    half = holding(gang("a", 2), [("n0", 1)], has_run=False, let_in_s=NOW_S + YEAR_S)
    assert decide(state([], [node("n0", used=8)], [half])).take_back == (TakeBack("a", 1),)


def test_a_leader_that_is_a_little_behind_takes_nothing_back() -> None:
    half = holding(gang("a", 2), [("n0", 1)], has_run=False, let_in_s=NOW_S + 60)
    assert decide(state([], [node("n0", used=8)], [half])).take_back == ()


@pytest.mark.parametrize(
    ("ahead_s", "lets_in"), [(1.0, False), (LONGEST_PAUSE_S, False), (LONGEST_PAUSE_S + 60, False), (YEAR_S, True)]
)
def test_no_pause_is_longer_than_the_longest(ahead_s: float, lets_in: bool) -> None:
    decision = decide(state([gang("a", not_before_s=NOW_S + ahead_s)], nodes(1)))
    assert let_in(decision) == (["a"] if lets_in else [])
    assert lets_in or decision.told[0].why is Why.BACK_OFF


def test_a_job_ends_its_deadline_from_now_at_the_latest() -> None:
    """Else others that end before a year from now would be let in before the gang that waits for it."""
    admission = record(letInTime="2027-03-01T08:00:00Z")
    job = a_job(status=QUEUED | {"phase": "Running", "admission": admission}, runPolicy={"activeDeadlineSeconds": 60})
    (found,) = seen(job).holdings
    assert found.ends_s == (NOW + timedelta(seconds=60)).timestamp()


def test_starts_that_have_yet_to_come_estimate_nothing() -> None:
    ahead = [NOW_S + YEAR_S] * 3
    assert pace(ahead, NOW_S) is None
    assert pace([*ahead, NOW_S - 30, NOW_S - 20, NOW_S - 10], NOW_S) == 10.0


@given(ahead_s=st.sampled_from([60.0, YEAR_S]), weight=st.integers(1, 8), seed=st.integers(1, 50))
def test_a_start_from_the_future_costs_few_turns(ahead_s: float, weight: int, seed: int) -> None:
    """The policies go by what is counted with the starts; their times only tell who was idle."""
    starts = [Start(name, NOW_S + ahead_s, Turn(seed * 10**9, at * seed)) for at, name in enumerate(("a", "b"))]
    chosen = policy(PolicyName.SMOOTH_WEIGHTED_ROUND_ROBIN, starts)
    candidates = [Candidate("a", weight, NOW_S, 0, NOW_S), Candidate("b", 1, NOW_S, 0, NOW_S)]
    turns = []
    for _ in range(20 * (weight + 1)):
        given_turn = chosen.pick(candidates)
        chosen.charge(given_turn, candidates)
        turns.append(given_turn.queue)
    assert abs(turns.count("b") - 20) <= MOST_OWED + 1


def test_a_job_from_the_future_is_let_in() -> None:
    """Its age is the API server's word. It is the last of its queue, and waits for no time."""
    young = gang("young", since_s=NOW_S + YEAR_S)
    assert let_in(decide(state([young], nodes(1)))) == ["young"]
    assert let_in(decide(state([young, replace(young, key="old", since_s=NOW_S)], nodes(1)))) == ["old"]
