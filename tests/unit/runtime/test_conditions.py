"""The life of conditions."""

from datetime import UTC, datetime, timedelta

from torchctl.runtime.conditions import MAX_MESSAGE, carry_over
from torchctl.runtime.kinds import Condition

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_transition_time_moves_only_when_the_status_does() -> None:
    (first,) = carry_over((), (Condition("Ready", "False", "A", "a"),), NOW)
    (same,) = carry_over((first,), (Condition("Ready", "False", "B", "b"),), NOW + timedelta(hours=1))
    (turned,) = carry_over((same,), (Condition("Ready", "True", "C", "c"),), NOW + timedelta(hours=2))
    assert [c.last_transition_time for c in (first, same, turned)] == [NOW, NOW, NOW + timedelta(hours=2)]


def test_a_message_is_never_longer_than_the_api_server_takes() -> None:
    (found,) = carry_over((), (Condition("Ready", "False", "A", "a" * 2 * MAX_MESSAGE),), NOW)
    assert len(found.message) == MAX_MESSAGE
