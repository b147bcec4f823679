"""Durations as kubectl takes and shows them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.client.durations import parse, short


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("0", 0), ("1.5", 1.5), ("30s", 30), ("1m30s", 90), ("2h", 7200), ("1d", 86_400), ("500ms", 0.5)],
)
def test_a_duration_is_read_as_kubectl_reads_it(text: str, seconds: float) -> None:
    assert parse(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1x", "1m 30s", "10s!", "ten", "1e9", "٣s"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0.4, "0s"),
        (59, "59s"),
        (60, "1m"),
        (90, "1m30s"),
        (600, "10m"),
        (3600, "1h"),
        (5430, "1h30m"),
        (36_000, "10h"),
        (90_000, "1d1h"),
        (1_000_000, "11d"),
    ],
)
def test_an_age_is_shown_in_two_units_at_most(seconds: float, text: str) -> None:
    assert short(seconds) == text


@given(st.floats(0, 1e9))
def test_what_is_shown_reads_as_nearly_the_same(seconds: float) -> None:
    shown = parse(short(seconds))
    assert shown is not None
    assert seconds * 0.9 - 1 <= shown <= seconds
