"""What a benchmark says of its samples."""

import pytest
from bench.figures import Figure, percentile, spread


@pytest.mark.parametrize(
    ("rank", "expected"), [(0, 1.0), (1, 1.0), (50, 50.0), (99, 99.0), (99.1, 100.0), (100, 100.0)]
)
def test_percentile_is_the_nearest_rank(rank: float, expected: float) -> None:
    """The smallest sample that the given part of all samples does not exceed."""
    assert expected == percentile([float(number) for number in range(100, 0, -1)], rank)


def test_one_sample_is_every_percentile() -> None:
    assert {7.0} == {percentile([7.0], rank) for rank in (0, 50, 99, 100)}


@pytest.mark.parametrize(("samples", "rank"), [([], 50.0), ([1.0], -1.0), ([1.0], 100.5)])
def test_a_percentile_of_nothing_or_of_no_rank_is_refused(samples: list[float], rank: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile(samples, rank)


def test_a_spread_shows_the_ends_and_the_middle() -> None:
    assert spread([9.0, 1.0, 2.0]) == {"min": 1.0, "median": 2.0, "max": 9.0, "samples": 3}


@pytest.mark.parametrize(
    ("value", "goal", "better", "reached"),
    [
        (2, 3, "lower", True),
        (4, 3, "lower", False),
        (50, 50, "higher", True),
        (49, 50, "higher", False),
        (1, None, "lower", None),
    ],
)
def test_a_goal_is_reached_from_its_good_side(
    value: float, goal: float | None, better: str, reached: bool | None
) -> None:
    figure = Figure(bench="b", name="n", value=value, unit="u", goal=goal, better=better)  # type: ignore[arg-type]  # a literal
    assert reached is figure.reached
