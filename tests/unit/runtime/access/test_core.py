"""Who is let in, who is asked about, and what a flood costs."""

from hypothesis import given
from hypothesis import strategies as st

from torchctl.runtime.access.core import (
    ALLOWED_S,
    READERS,
    REFUSED,
    REFUSED_S,
    STRANGERS_AT_ONCE,
    STRANGERS_PER_S,
    UNAVAILABLE_S,
    Access,
    Ledger,
    Step,
    bearer,
    digest,
)

TOKEN = digest("token")
NOW = 1000.0


def judged(access: Access, now: float = NOW) -> Ledger:
    """A ledger that asked about the token once."""
    ledger = Ledger()
    assert ledger.ask(TOKEN, now) is Step.REVIEW
    ledger.settle(TOKEN, access, now)
    return ledger


def test_only_what_follows_bearer_is_a_token() -> None:
    assert bearer("Bearer abc.def-_") == "abc.def-_"
    assert bearer("bearer   abc ") == "abc"
    for header in (
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        "abc",
        "Bearer a b",
        "Bearer tök",
        "Bearer \udc80",
        "Bearerabc",
    ):
        assert bearer(header) == "", header


def test_nothing_that_is_kept_leads_back_to_a_token() -> None:
    ledger = Ledger()
    ledger.ask(digest("secret"), NOW)
    ledger.settle(digest("secret"), Access.ALLOWED, NOW)
    kept = [getattr(ledger, name) for name in vars(ledger)]
    assert "secret" not in f"{ledger!r}{kept!r}"


def test_reader_is_reviewed_again_after_a_minute() -> None:
    ledger = judged(Access.ALLOWED)
    assert ledger.ask(TOKEN, NOW + ALLOWED_S - 0.1) is Access.ALLOWED
    assert ledger.ask(TOKEN, NOW + ALLOWED_S) is Step.REVIEW


def test_a_refusal_stands_for_seconds_and_keeps_its_reason() -> None:
    for access in (Access.UNAUTHENTICATED, Access.FORBIDDEN):
        ledger = judged(access)
        assert ledger.ask(TOKEN, NOW + REFUSED_S - 0.1) is access
        assert ledger.ask(TOKEN, NOW + REFUSED_S) is Step.REVIEW


def test_reader_without_the_right_is_out_within_a_minute() -> None:
    ledger = judged(Access.ALLOWED)
    later = NOW + ALLOWED_S
    assert ledger.ask(TOKEN, later) is Step.REVIEW
    ledger.settle(TOKEN, Access.FORBIDDEN, later)
    assert ledger.ask(TOKEN, later + 1) is Access.FORBIDDEN


def test_one_token_is_asked_about_once_at_a_time() -> None:
    ledger = Ledger()
    assert ledger.ask(TOKEN, NOW) is Step.REVIEW
    assert ledger.ask(TOKEN, NOW) is Step.WAIT
    ledger.settle(TOKEN, Access.ALLOWED, NOW)
    assert ledger.ask(TOKEN, NOW) is Access.ALLOWED


def test_outage_admits_nobody_and_pauses_reviews_of_strangers() -> None:
    ledger = judged(Access.UNAVAILABLE)
    assert ledger.ask(TOKEN, NOW) is Access.UNAVAILABLE
    assert ledger.ask(TOKEN, NOW + UNAVAILABLE_S) is Step.REVIEW


def test_reader_is_reviewed_even_during_an_outage() -> None:
    """A reader stays one through an outage, but gets in only after a review."""
    ledger = judged(Access.ALLOWED)
    later = NOW + ALLOWED_S
    assert ledger.ask(TOKEN, later) is Step.REVIEW
    ledger.settle(TOKEN, Access.UNAVAILABLE, later)
    assert ledger.ask(digest("another"), later) is Access.UNAVAILABLE
    assert ledger.ask(TOKEN, later) is Step.REVIEW


def test_strangers_wait_for_each_other_and_readers_for_nobody() -> None:
    ledger = judged(Access.ALLOWED)
    later = NOW + ALLOWED_S
    answers = [ledger.ask(digest(f"wrong {number}"), later) for number in range(100)]
    assert answers == [Step.REVIEW] * STRANGERS_AT_ONCE + [Access.BUSY] * (100 - STRANGERS_AT_ONCE)
    assert ledger.ask(TOKEN, later) is Step.REVIEW


def test_a_flood_forgets_no_reader() -> None:
    ledger = judged(Access.ALLOWED)
    for number in range(2 * REFUSED):
        wrong, at = digest(str(number)), NOW + number
        assert ledger.ask(wrong, at) is Step.REVIEW
        ledger.settle(wrong, Access.UNAUTHENTICATED, at)
    assert repr(ledger) == f"<Ledger of 1 readers, {REFUSED} refused>"


def test_readers_are_bounded_too() -> None:
    ledger = Ledger()
    for number in range(2 * READERS):
        ledger.ask(digest(str(number)), NOW + number)
        ledger.settle(digest(str(number)), Access.ALLOWED, NOW + number)
    assert repr(ledger) == f"<Ledger of {READERS} readers, 0 refused>"


@given(
    st.lists(
        st.tuples(
            st.floats(0, 0.5), st.integers(0, 40), st.sampled_from([Access.UNAUTHENTICATED, Access.FORBIDDEN, None])
        ),
        max_size=200,
    )
)
def test_whatever_knocks_no_second_has_more_reviews_than_its_bound(
    knocks: list[tuple[float, int, Access | None]],
) -> None:
    """Some reviews end at once, some only when the next one of their token is wanted."""
    ledger, now = Ledger(), NOW
    begun: list[float] = []
    under_way: set[bytes] = set()
    for pause_s, number, access in knocks:
        now += pause_s
        token = digest(str(number))
        answer = ledger.ask(token, now)
        if answer is Step.REVIEW:
            begun.append(now)
            under_way.add(token)
        assert len(under_way) <= STRANGERS_AT_ONCE
        assert sum(now - at < 1.0 for at in begun) <= STRANGERS_PER_S
        if token in under_way and access is not None:
            ledger.settle(token, access, now)
            under_way.discard(token)
