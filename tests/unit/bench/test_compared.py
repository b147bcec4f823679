"""What is said of a figure that was measured before."""

import json
from pathlib import Path
from typing import Literal

import pytest
from bench.compared import Baseline, load
from bench.figures import Figure

BASELINE = Baseline("abc", {"latency: p50": 20.0, "sync: times faster": 20.0})


@pytest.mark.parametrize(
    ("bench", "name", "better", "value", "said"),
    [
        ("latency", "p50", "lower", 21.0, "+5%"),
        ("latency", "p50", "lower", 22.5, "+12% WORSE"),
        ("latency", "p50", "lower", 5.0, "-75%"),
        ("sync", "times faster", "higher", 17.0, "-15% WORSE"),
        ("sync", "times faster", "higher", 30.0, "+50%"),
    ],
)
def test_figure_is_worse_beyond_a_tenth_on_its_bad_side(
    bench: str, name: str, better: Literal["lower", "higher"], value: float, said: str
) -> None:
    compared = BASELINE.compare(Figure(bench=bench, name=name, value=value, unit="", better=better))
    assert str(compared) == said


def test_a_figure_that_nobody_measured_before_is_not_compared() -> None:
    assert BASELINE.compare(Figure(bench="latency", name="p75", value=1.0, unit="ms")) is None


def test_a_baseline_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"version": "abc", "figures": {"latency: p50": 20.0}}))
    assert load(path) == Baseline("abc", {"latency: p50": 20.0})
    assert load().figures, "the one that is kept can be read"
