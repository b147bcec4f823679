"""What a condition's type and its reason are: words with a meaning, from which docs/reference/conditions.md is made."""

from enum import StrEnum
from typing import Self

__all__ = ["ConditionType", "EventType", "Reason"]


class EventType(StrEnum):
    """The Event that goes with a reason, or with a phase. Not every reason is worth one."""

    NORMAL = "Normal"
    WARNING = "Warning"
    NONE = ""


class ConditionType(StrEnum):
    """A type of condition; `meaning` is what True says."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member


class Reason(StrEnum):
    """A reason: in which conditions it stands, what it means, and what a person does about it (nothing, if empty).

    An Event tells when a condition turns to it: a Warning where there is something to do, unless a row says otherwise.
    """

    conditions: tuple[ConditionType, ...]
    meaning: str
    step: str
    event: EventType

    def __new__(
        cls,
        value: str,
        conditions: tuple[ConditionType, ...],
        meaning: str,
        step: str = "",
        event: EventType | None = None,
    ) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.conditions, member.meaning, member.step = value, conditions, meaning, step
        member.event = event if event is not None else EventType.WARNING if step else EventType.NONE
        return member
