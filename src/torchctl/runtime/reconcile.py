"""The contract between a controller and what it runs: a key goes in, a wish for later comes out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from torchctl.runtime.client.errors import ApiError, Conflict, NotLeader
from torchctl.runtime.kinds import Key

__all__ = ["Outcome", "OutcomeKind", "Reconciler", "Request", "Result", "TerminalError", "outcome_of_error"]

Request = Key
"""What is reconciled: a namespace and a name, never the event that led to it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconciler wants next.

    Attributes:
        requeue_after_s: Look at the key again in so many seconds, whatever happens until then. None: only a
            change brings it back.
        back_off: Look at the key again with the delay of one that fails, which doubles each time, though nothing has
            failed. With both, the earlier one counts.
    """

    requeue_after_s: float | None = None
    back_off: bool = False


Reconciler = Callable[[Request], Awaitable[Result | None]]
"""Brings one object closer to what it should be. Level-triggered: it reads the state of the world and must be
safe to run at any time, any number of times. An exception means a retry with back-off."""


class TerminalError(Exception):
    """Raised by a reconciler for what no retry can mend; the key waits for its next change."""


class OutcomeKind(StrEnum):
    """The values of the label `result` of controller_runtime_reconcile_total."""

    SUCCESS = "success"
    ERROR = "error"
    REQUEUE = "requeue"
    REQUEUE_AFTER = "requeue_after"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one reconcile ended, and what the queue and the metrics make of it.

    Attributes:
        kind: The label in the metrics.
        requeue_after_s: When to look again on the reconciler's own wish.
        retry: Whether to come back with the rate limiter's delay.
        error: What was raised, if anything.
        panic: The error is none of the API's: a fault in the reconciler.
        terminal: The error is one that no retry can mend.
        timeout: The reconciler used up its time.
    """

    kind: OutcomeKind
    requeue_after_s: float | None = None
    retry: bool = False
    error: BaseException | None = None
    panic: bool = False
    terminal: bool = False
    timeout: bool = False

    @classmethod
    def of(cls, result: Result | None) -> "Outcome":
        if result is None:
            return cls(OutcomeKind.SUCCESS)
        if result.back_off:
            return cls(OutcomeKind.REQUEUE, requeue_after_s=result.requeue_after_s, retry=True)
        if result.requeue_after_s is None:
            return cls(OutcomeKind.SUCCESS)
        return cls(OutcomeKind.REQUEUE_AFTER, requeue_after_s=result.requeue_after_s)


def outcome_of_error(error: Exception) -> Outcome:
    """Sorts what a reconciler raised.

    A conflict is how optimistic concurrency says "look again", no error; a write that the fence refused ends
    with the leadership that it belonged to.
    """
    if isinstance(error, Conflict | NotLeader):
        return Outcome(OutcomeKind.REQUEUE, retry=True, error=error)
    if isinstance(error, TerminalError):
        return Outcome(OutcomeKind.ERROR, error=error, terminal=True)
    if isinstance(error, TimeoutError):
        return Outcome(OutcomeKind.ERROR, retry=True, error=error, timeout=True)
    return Outcome(OutcomeKind.ERROR, retry=True, error=error, panic=not isinstance(error, ApiError))
