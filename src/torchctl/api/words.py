"""Words with a meaning, which docs/reference is made from: types and reasons of conditions, and their base."""

from enum import StrEnum
from typing import Self

__all__ = ["ConditionType", "EventType", "Reason", "Word"]


class Word(StrEnum):
    """A word that carries its meaning: each member is written as the word, then the meaning.

    A subclass whose members carry more overrides `__init__`, which gets all that a member is written as.
    """

    meaning: str

    def __new__(cls, value: str, *_: object) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        return member

    def __init__(self, _value: str, meaning: str = "") -> None:
        self.meaning = meaning


class EventType(StrEnum):
    """The type of the Event for a reason or a phase; empty if there is none."""

    NORMAL = "Normal"
    WARNING = "Warning"
    NONE = ""


class ConditionType(Word):
    """A type of condition; `meaning` is what True says."""


class Reason(Word):
    """A reason of a condition: the conditions that give it, its meaning, and the next step for a person, if any.

    An Event is recorded when a condition changes to this reason. It is a Warning if there is a next step, unless the
    member says otherwise.
    """

    conditions: tuple[ConditionType, ...]
    step: str
    event: EventType

    def __init__(
        self,
        value: str,
        conditions: tuple[ConditionType, ...],
        meaning: str,
        step: str = "",
        event: EventType | None = None,
    ) -> None:
        super().__init__(value, meaning)
        self.conditions, self.step = conditions, step
        self.event = event if event is not None else EventType.WARNING if step else EventType.NONE
