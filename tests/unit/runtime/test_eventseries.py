"""Repeats are counted, floods are combined, and a chatterbox is cut off, by client-go's rules."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from torchctl.runtime.eventseries import BURST, COMBINED, REFILL_S, SIMILAR, SIMILAR_WITHIN_S, EventSeries, Occurrence
from torchctl.runtime.kinds import ObjectReference

AT = datetime(2030, 1, 1, tzinfo=UTC)
JOB = ObjectReference(kind="TorchrunJob", namespace="team", name="train", uid="u1", api_version="x/v1")


def happening(message: str = "it happened", *, regarding: ObjectReference = JOB, reason: str = "Because") -> Occurrence:
    return Occurrence(regarding, "Normal", reason, message, AT)


def test_repeated_event_keeps_its_name_and_raises_its_count() -> None:
    series = EventSeries()
    first, second = series.observe(happening(), 0), series.observe(happening(), 1)
    assert first is not None
    assert second is not None
    assert (first.count, second.count) == (1, 2)
    assert first.name == second.name


def test_another_object_reason_or_message_is_another_event() -> None:
    reborn = replace(happening(), regarding=ObjectReference(name="train", uid="u2"))
    occurrences = [happening(), happening("else"), happening(reason="Other"), reborn]
    series = EventSeries()
    names = {written.name for occurrence in occurrences if (written := series.observe(occurrence, 0))}
    assert len(names) == 4


def test_a_name_is_the_same_in_the_next_process() -> None:
    one, other = EventSeries().observe(happening(), 0), EventSeries().observe(happening(), 99)
    assert one is not None
    assert other is not None
    assert one.name == other.name
    assert one.name.startswith("train.")


def test_many_similar_messages_become_one_event() -> None:
    series = EventSeries()
    written = [series.observe(happening(f"message {n}"), n) for n in range(SIMILAR + 3)]
    combined = [event for event in written if event and event.message.startswith(COMBINED)]
    assert [event.count for event in combined] == [1, 2, 3]
    assert len({event.name for event in combined}) == 1
    assert combined[-1].message == f"{COMBINED}message {SIMILAR + 2}"


def test_a_message_that_is_known_is_not_combined() -> None:
    series = EventSeries()
    for n in range(SIMILAR):
        series.observe(happening(f"message {n}"), n)
    again = series.observe(happening("message 0"), SIMILAR)
    assert again is not None
    assert (again.message, again.count) == ("message 0", 2)


def test_after_ten_quiet_minutes_messages_stand_alone_again() -> None:
    series = EventSeries()
    for n in range(SIMILAR + 1):
        series.observe(happening(f"message {n}"), 0)
    later = series.observe(happening("new"), SIMILAR_WITHIN_S)
    assert later is not None
    assert later.message == "new"


def test_burst_of_events_throttles_only_its_own_object() -> None:
    series = EventSeries()
    written = [series.observe(happening(), 0) for _ in range(BURST + 5)]
    assert written[BURST:] == [None] * 5
    assert None not in written[:BURST]
    assert series.observe(happening(regarding=ObjectReference(name="other", uid="u9")), 0) is not None


def test_one_more_is_written_after_the_refill_time() -> None:
    series = EventSeries()
    for _ in range(BURST + 1):
        series.observe(happening(), 0)
    assert series.observe(happening(), REFILL_S - 1) is None
    assert series.observe(happening(), REFILL_S) is not None
    assert series.observe(happening(), REFILL_S) is None


def test_a_count_that_somebody_else_knows_better_is_taken_over() -> None:
    series = EventSeries()
    first = series.observe(happening(), 0)
    assert first is not None
    series.resume(first, 41)
    again = series.observe(happening(), 1)
    assert again is not None
    assert again.count == 42


@given(st.text(max_size=3000), st.text("abc.-", min_size=1, max_size=253))
def test_names_and_messages_stay_within_the_servers_bounds(message: str, name: str) -> None:
    written = EventSeries().observe(happening(message, regarding=ObjectReference(name=name)), 0)
    assert written is not None
    assert len(written.message) <= 1024
    assert len(written.name) <= 253
    assert ".." not in written.name[len(name) - 1 :]
