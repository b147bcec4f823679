"""When a request is sent again: reads patiently, writes only when the server did not look at them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.runtime.client.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Timeout,
    TooManyRequests,
    Unavailable,
)
from torchctl.runtime.client.retry import RetryPolicy

POLICY = RetryPolicy()


def delay(
    error: ApiError, *, write: bool = False, attempt: int = 1, elapsed_s: float = 0.0, jitter: float = 0.0
) -> float | None:
    return POLICY.delay(error, write=write, attempt=attempt, elapsed_s=elapsed_s, jitter=jitter)


@pytest.mark.parametrize("error", [TooManyRequests(), Unavailable(), Timeout()])
def test_reads_are_repeated_when_the_server_is_in_trouble(error: ApiError) -> None:
    assert delay(error) is not None


@pytest.mark.parametrize("error", [NotFound(), Conflict(), Forbidden(), Invalid(), ApiError()])
@pytest.mark.parametrize("write", [False, True])
def test_nothing_is_repeated_that_the_server_judged(error: ApiError, write: bool) -> None:
    assert delay(error, write=write) is None


@pytest.mark.parametrize("error", [Unavailable(), Timeout()])
def test_a_write_of_unknown_outcome_is_never_repeated(error: ApiError) -> None:
    assert delay(error, write=True) is None


def test_throttled_write_is_repeated() -> None:
    """The server answered 429 without looking at it."""
    assert delay(TooManyRequests(), write=True) is not None


@given(st.integers(1, 10_000), st.floats(0, 0.999))
def test_delays_double_up_to_a_cap_with_jitter(attempt: int, jitter: float) -> None:
    """Jitter takes at most a half."""
    full = min(POLICY.cap_s, POLICY.first_s * 2 ** (min(attempt, 30) - 1))
    wait_s = delay(Unavailable(), attempt=attempt, jitter=jitter)
    assert wait_s is not None
    assert full / 2 <= wait_s <= full


@given(st.floats(0, 20), st.floats(0, 0.999))
def test_the_wait_that_the_server_asks_for_is_kept(asked_s: float, jitter: float) -> None:
    wait_s = delay(TooManyRequests(retry_after_s=asked_s), jitter=jitter)
    assert wait_s is not None
    assert wait_s >= asked_s


def test_an_absurd_wait_is_not_waited_for() -> None:
    assert delay(TooManyRequests(retry_after_s=1e9)) is None
    patient = RetryPolicy(deadline_s=1000)
    wait_s = patient.delay(TooManyRequests(retry_after_s=1e9), write=False, attempt=1, elapsed_s=0, jitter=0)
    assert wait_s == 60.0


@given(st.floats(0, 100), st.integers(1, 20), st.floats(0, 0.999), st.none() | st.floats(0, 100))
def test_no_attempt_begins_after_the_deadline(
    elapsed_s: float, attempt: int, jitter: float, asked_s: float | None
) -> None:
    wait_s = delay(Unavailable(retry_after_s=asked_s), attempt=attempt, elapsed_s=elapsed_s, jitter=jitter)
    assert wait_s is None or elapsed_s + wait_s < POLICY.deadline_s
