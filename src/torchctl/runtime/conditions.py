"""The life of metav1.Conditions: a condition's transition time moves only when its status does."""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from torchctl.runtime.kinds import Condition

__all__ = ["MAX_MESSAGE", "State", "carry_over", "find", "is_true"]


MAX_MESSAGE = 32768
"""Characters of a condition's message."""


class State(Protocol):
    """A condition, or as much of one as a kind keeps."""

    @property
    def type(self) -> str: ...

    @property
    def status(self) -> str: ...


S = TypeVar("S", bound=State)


def carry_over(old: Iterable[Condition], new: Iterable[Condition], now: datetime) -> tuple[Condition, ...]:
    """The new conditions, each with its old transition time where its status is the old one, else `now`.

    Times are whole seconds, as the API server keeps them: a finer `now` would read back as a difference. A message
    is cut at what metav1.Condition allows: else what is too long to be told would not be told at all.
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
