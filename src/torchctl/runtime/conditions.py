"""Rules for metav1.Conditions: a condition's transition time changes only if its status does."""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from torchctl.runtime.kinds import Condition

__all__ = ["MAX_MESSAGE", "State", "carry_over", "find", "is_true"]


MAX_MESSAGE = 32768
"""The maximum number of characters in a condition's message."""


class State(Protocol):
    """The part of a condition that every kind keeps."""

    @property
    def type(self) -> str: ...

    @property
    def status(self) -> str: ...


S = TypeVar("S", bound=State)


def carry_over(old: Iterable[Condition], new: Iterable[Condition], now: datetime) -> tuple[Condition, ...]:
    """Returns the new conditions; each keeps its old transition time if its status is unchanged, else gets `now`.

    Times are whole seconds, as the API server keeps them: a finer `now` would read back as a difference. A message
    is cut at the length that metav1.Condition allows, because the API server would refuse a longer one.
    """
    known = {condition.type: condition for condition in old}
    return tuple(
        msgspec.structs.replace(
            condition,
            message=condition.message[:MAX_MESSAGE],
            last_transition_time=_since(known.get(condition.type), condition, now.replace(microsecond=0)),
        )
        for condition in new
    )


def find(conditions: Iterable[S] | None, type_: str) -> S | None:
    """The condition of that type, or None."""
    return next((condition for condition in conditions or () if condition.type == type_), None)


def is_true(conditions: Iterable[State] | None, type_: str) -> bool:
    condition = find(conditions, type_)
    return condition is not None and condition.status == "True"


def _since(old: Condition | None, new: Condition, now: datetime) -> datetime:
    if old is None or old.status != new.status or old.last_transition_time is None:
        return now
    return old.last_transition_time
