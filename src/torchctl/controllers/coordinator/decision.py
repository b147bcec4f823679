"""The outcome of the coordinator's decision: who is let in, who has to leave, and what those that wait are told."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from torchctl.api import jobstatus
from torchctl.controllers.coordinator.values import Turn

__all__ = ["Answer", "Decision", "LetIn", "Preempt", "TakeBack", "Told", "Why"]


class Why(StrEnum):
    """Why a gang waits, as a reason of the condition Admitted."""

    NO_QUEUE = "QueueNotFound"
    NEVER_FITS = jobstatus.NEVER_FITS
    UNREADABLE = "TemplateUnreadable"
    NODES = "NodesShort"
    QUOTA = "QuotaShort"
    BEHIND = "RoomKept"
    PREEMPTING = "Preempting"
    BACK_OFF = jobstatus.PODS_NOT_PLACED
    NEXT = "NextDecision"


class LetIn(NamedTuple):
    """A gang that is let in, and the turns to record with it.

    Args:
        only: Nodes to which its pods are limited, because they were kept for it; empty: any.
        avoid: Nodes on which its pods must not run, because they are kept for another gang.
    """

    key: str
    queue: str
    turn: Turn
    cohort_turn: Turn = Turn()
    only: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()


class Preempt(NamedTuple):
    """A gang that has to leave, and the gang that it leaves for."""

    key: str
    leaving_for: str


class TakeBack(NamedTuple):
    """A gang that loses its place because some of its pods found none."""

    key: str
    missing: int


class Answer:
    """Why a gang waits, the same for all that ask for the same. Its sentence is made when somebody reads it.

    Args:
        say: Makes the sentence that says what is short: most are never written.
        waits_for: The gang for which room or quota is kept; empty: none.
    """

    __slots__ = ("_message", "_say", "waits_for", "why")

    def __init__(self, why: Why, say: Callable[[], str], waits_for: str = "") -> None:
        self.why, self.waits_for = why, waits_for
        self._say, self._message = say, ""

    @property
    def message(self) -> str:
        self._message = self._message or self._say()
        return self._message

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Answer):
            return NotImplemented
        return (self.why, self.waits_for, self.message) == (other.why, other.waits_for, other.message)


class Told(NamedTuple):
    """What a gang that waits is told.

    Args:
        place: Its place in its queue, from 1; 0 if it has none.
        estimate_s: When it will start, by estimate: from deadlines, else from how often its queue started jobs.
    """

    key: str
    place: int
    answer: Answer
    estimate_s: float | None = None

    @property
    def why(self) -> Why:
        return self.answer.why

    @property
    def message(self) -> str:
        return self.answer.message

    @property
    def waits_for(self) -> str:
        return self.answer.waits_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to write, in this order: who is let in, taken back and preempted; whom room is kept for; the rest.

    Args:
        more: Whether there may be more to let in at once.
    """

    let_in: tuple[LetIn, ...] = ()
    preempt: tuple[Preempt, ...] = ()
    take_back: tuple[TakeBack, ...] = ()
    reserved: tuple[str, ...] = ()
    told: tuple[Told, ...] = ()
    more: bool = False
