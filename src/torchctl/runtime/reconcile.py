"""The contract between the runtime and a reconciler: it gets a key and returns when to requeue it."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from torchctl.runtime.apply import ForeignObject, StillDeleting
from torchctl.runtime.client.errors import ApiError, Conflict, NotLeader
from torchctl.runtime.kinds import Key

__all__ = ["Conclusion", "Reconciler", "Request", "Result", "ResultLabel", "TerminalError", "conclusion_of_error"]

Request = Key
"""The key of the object to reconcile: namespace and name, never the event that led to it."""


@dataclass(frozen=True, slots=True)
class Result:
    """A reconciler's wish for when to run again.

    Attributes:
        requeue_after_s: Requeue the key after this many seconds, whatever happens until then. None: only a change
            brings it back. 0 or less: as `back_off`, because a loop without a delay would take a whole CPU.
        back_off: Requeue the key with the rate limiter's delay, which doubles each time, although nothing has failed.
            If both are set, the earlier one counts.
    """

    requeue_after_s: float | None = None
    back_off: bool = False


Reconciler = Callable[[Request], Awaitable[Result | None]]
"""Brings one object closer to what it should be. Level-triggered: it reads the state of the world and must be
safe to run at any time, any number of times. An exception means a retry with back-off."""


class TerminalError(Exception):
    """Raised by a reconciler if no retry can help; the key waits for its next change."""


class ResultLabel(StrEnum):
    """The values of the label `result` of controller_runtime_reconcile_total."""

    SUCCESS = "success"
    ERROR = "error"
    REQUEUE = "requeue"
    REQUEUE_AFTER = "requeue_after"


class Conclusion(msgspec.Struct, frozen=True):
    """The end of one reconcile, as the queue and the metrics see it.

    Attributes:
        kind: The label in the metrics.
        requeue_after_s: The delay that the reconciler asked for, in seconds.
        retry: Requeue with the rate limiter's delay.
        error: The exception that was raised, if any.
        panic: The error is not from the API: it is a fault in the reconciler.
        terminal: No retry can help.
        timeout: The reconciler used up its time.
    """

    kind: ResultLabel
    requeue_after_s: float | None = None
    retry: bool = False
    error: Exception | None = None
    panic: bool = False
    terminal: bool = False
    timeout: bool = False

    @property
    def reason(self) -> str:
        """The messages of the error, and of all its members if it is a group."""
        return "" if self.error is None else "; ".join(map(str, causes_of(self.error)))

    @classmethod
    def of(cls, result: Result | None) -> "Conclusion":
        after_s = None if result is None else result.requeue_after_s
        at_once = after_s is not None and not after_s > 0
        if result is not None and (result.back_off or at_once):
            return cls(ResultLabel.REQUEUE, requeue_after_s=None if at_once else after_s, retry=True)
        if after_s is None:
            return cls(ResultLabel.SUCCESS)
        return cls(ResultLabel.REQUEUE_AFTER, requeue_after_s=after_s)


_AGAIN = (Conflict, StillDeleting)
_EXPECTED = (ApiError, ForeignObject, TerminalError, TimeoutError)


def conclusion_of_error(error: Exception, *, fenced: bool = True) -> Conclusion:
    """Classifies the exception that a reconciler raised; an exception group by its gravest member.

    A conflict is no error: with optimistic concurrency it means "look again", and so does a child that is still being
    deleted. A write that the fence refused needs no retry, because the leadership that it belonged to is over. If
    several things failed, the key is retried as long as that can help one of them.

    Args:
        fenced: Whether the controller runs only while this process leads. One that always runs must not write through
            the fence at all: then `NotLeader` is a fault of its own.
    """
    again = (*_AGAIN, NotLeader) if fenced else _AGAIN
    causes = [*causes_of(error)]
    if not all(isinstance(cause, (*_EXPECTED, *again)) for cause in causes):
        return Conclusion(ResultLabel.ERROR, retry=True, error=error, panic=True)
    if all(isinstance(cause, TerminalError) for cause in causes):
        return Conclusion(ResultLabel.ERROR, error=error, terminal=True)
    if all(isinstance(cause, (*again, TerminalError)) for cause in causes):
        return Conclusion(ResultLabel.REQUEUE, retry=True, error=error)
    timeout = any(isinstance(cause, TimeoutError) for cause in causes)
    return Conclusion(ResultLabel.ERROR, retry=True, error=error, timeout=timeout)


def causes_of(error: Exception) -> Iterator[Exception]:
    """Returns the errors in an exception group, however deep; of any other error, itself."""
    if not isinstance(error, ExceptionGroup):
        yield error
        return
    for member in error.exceptions:
        yield from causes_of(member)
