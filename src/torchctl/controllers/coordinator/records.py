"""What a decision changes in the status of jobs. Pure.

Who is let in comes first, and nothing else of the decision matters if that cannot be written. What a job that waits is
told changes with every start of another one, so it is written only if what is short has changed, or after a while.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from torchctl.api.job import TorchrunJob
from torchctl.api.jobstatus import Admission
from torchctl.controllers.coordinator.decision import Decision, LetIn, Told
from torchctl.controllers.coordinator.plan import admission_of
from torchctl.runtime.kinds import key_of

__all__ = ["FRONT", "MOST_NODES", "records"]

MOST_NODES = 1024
"""Nodes that a record can name; a job that would have to avoid more is let in later."""

FRONT = 10
"""Places at the front of a queue, of which each change is told."""

_LONGEST = 1000


def records(
    decision: Decision, jobs: Iterable[TorchrunJob], now: datetime, *, words: bool
) -> list[tuple[TorchrunJob, Admission]]:
    """Returns the records to write, those of jobs that are let in first.

    Args:
        words: Whether place and estimate are due to be written, too.
    """
    by_key = {str(key_of(job)): job for job in jobs}
    moment = now.replace(microsecond=0)
    found = [
        (by_key[given.key], _let_in(by_key[given.key], given, moment))
        for given in decision.let_in
        if max(len(given.only), len(given.avoid)) <= MOST_NODES
    ]
    kept = frozenset(decision.reserved)
    for told in decision.told:
        job = by_key[told.key]
        old, new = admission_of(job), _told(job, told, told.key in kept, now)
        if old is None or _differs(old, new) or (words and _is_news(old, new, now)):
            found.append((job, new))
    return found


def _let_in(job: TorchrunJob, given: LetIn, moment: datetime) -> Admission:
    return Admission(
        attempt=job.status.attempt,
        let_in_time=moment,
        clock=given.turn.clock,
        position=given.turn.position,
        only_nodes=given.only,
        avoid_nodes=given.avoid,
    )


def _told(job: TorchrunJob, told: Told, reserved: bool, now: datetime) -> Admission:
    return Admission(
        attempt=job.status.attempt,
        reserved=reserved,
        place=told.place,
        reason=told.why,
        message=told.message[:_LONGEST],
        waits_for=told.waits_for,
        estimated_start_time=_minute(told.estimate_s, now),
    )


def _minute(estimate_s: float | None, now: datetime) -> datetime | None:
    """Returns the estimate to the minute: it is one."""
    if estimate_s is None:
        return None
    at = now + timedelta(seconds=estimate_s - now.timestamp())
    return at.replace(second=0, microsecond=0)


def _differs(old: Admission, new: Admission) -> bool:
    """Whether a person would act differently, or a later decision."""
    return (old.reason, old.waits_for, old.reserved) != (new.reason, new.waits_for, new.reserved)


def _is_news(old: Admission, new: Admission, now: datetime) -> bool:
    """Whether a person would notice: far back in a queue, a few places or other numbers make no difference."""
    if old.place == 0 or abs(new.place - old.place) * 10 > old.place:
        return True
    if new.place <= FRONT and old.message != new.message:
        return True
    before, after = old.estimated_start_time, new.estimated_start_time
    if before is None or after is None:
        return before != after
    return abs(after - before) > max(timedelta(minutes=5), abs(before - now) / 5)
