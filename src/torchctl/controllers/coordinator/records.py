"""What a decision changes in the status of jobs. Pure.

Who is let in comes first, then whose room is taken back, and nothing else of the decision matters if that cannot be
written. What a job that waits is told changes with every start of another one, so it is written only if what is short
has changed, or after a while.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from torchctl.api.job import TorchrunJob
from torchctl.api.jobstatus import Admission
from torchctl.controllers.coordinator.decision import Decision, LetIn, Told
from torchctl.controllers.coordinator.jobgangs import admission_of, held_by
from torchctl.controllers.coordinator.values import LONGEST_PAUSE_S
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.kinds import key_of

__all__ = ["FRONT", "records"]

FRONT = 10
"""Places at the front of a queue, of which each change is told."""

_LONGEST = 1000
_LONGEST_ESTIMATE = timedelta(days=365)


def records(
    decision: Decision, jobs: Iterable[TorchrunJob], now: datetime, settings: CoordinatorSettings, *, words: bool
) -> list[tuple[TorchrunJob, Admission]]:
    """Returns the records to write, those of jobs that are let in first, then of those whose room is taken back.

    Args:
        words: Whether place and estimate are due to be written, too.
    """
    by_key = {str(key_of(job)): job for job in jobs}
    moment = now.replace(microsecond=0)
    found = [(by_key[given.key], _let_in(by_key[given.key], given, moment)) for given in decision.let_in]
    found += [
        (by_key[given.key], _taken_back(by_key[given.key], moment, settings.pause_s)) for given in decision.take_back
    ]
    found += [(by_key[key], _preempted(by_key[key], preemptor, moment)) for key, preemptor in decision.preempt]
    kept = frozenset(decision.reserved)
    for told in decision.told:
        job = by_key[told.key]
        old, reserved = admission_of(job), told.key in kept
        if old is None or _differs(old, told, reserved) or (words and _is_news(old, told, now)):
            found.append((job, _told(job, told, reserved, now)))
    return found


def pause(misses: int, first_s: float) -> timedelta:
    """Returns how long a job waits at least that was let in so often in a row, and whose pods found no node."""
    return timedelta(seconds=min(first_s * (1 << min(misses - 1, 30)), LONGEST_PAUSE_S))


def _misses(job: TorchrunJob) -> int:
    """Returns how often in a row the job was let in for nothing; an attempt that got all its nodes ends the row."""
    record = job.status.admission
    if record is None or (record.attempt != job.status.attempt and record.not_before_time is None):
        return 0
    return record.misses


def _taken_back(job: TorchrunJob, moment: datetime, pause_s: float) -> Admission:
    misses = _misses(job) + 1
    return replace(
        _current(job), taken_back_time=moment, misses=misses, not_before_time=moment + pause(misses, pause_s)
    )


def _preempted(job: TorchrunJob, preemptor: str, moment: datetime) -> Admission:
    return replace(_current(job), taken_back_time=moment, preempted_for=preemptor)


def _current(job: TorchrunJob) -> Admission:
    held = held_by(job)
    assert held is not None  # only what holds room loses it
    return held


def _let_in(job: TorchrunJob, given: LetIn, moment: datetime) -> Admission:
    return Admission(
        attempt=job.status.attempt,
        let_in_time=moment,
        clock=given.turn.clock,
        position=given.turn.position,
        only_nodes=given.only,
        avoid_nodes=given.avoid,
        misses=_misses(job),
    )


def _told(job: TorchrunJob, told: Told, reserved: bool, now: datetime) -> Admission:
    before = job.status.admission
    return Admission(
        attempt=job.status.attempt,
        misses=_misses(job),
        not_before_time=before.not_before_time if before is not None else None,
        reserved=reserved,
        place=told.place,
        reason=told.why,
        message=told.message[:_LONGEST],
        waits_for=told.waits_for,
        estimated_start_time=_minute(told.estimate_s, now),
    )


def _minute(estimate_s: float | None, now: datetime) -> datetime | None:
    """Returns the estimate to the minute, because it is one; none that is years away."""
    left_s = None if estimate_s is None else estimate_s - now.timestamp()
    if left_s is None or left_s > _LONGEST_ESTIMATE.total_seconds():
        return None
    return (now + timedelta(seconds=max(0.0, left_s))).replace(second=0, microsecond=0)


def _differs(old: Admission, told: Told, reserved: bool) -> bool:
    """Whether a person would act differently, or a later decision."""
    return (old.reason, old.waits_for, old.reserved) != (told.why, told.waits_for, reserved)


def _is_news(old: Admission, told: Told, now: datetime) -> bool:
    """Whether a person would notice: far back in a queue, a few places or other numbers make no difference."""
    if abs(told.place - old.place) * 10 > old.place:
        return True
    if told.place <= FRONT and old.message != told.message[:_LONGEST]:
        return True
    before, after = old.estimated_start_time, _minute(told.estimate_s, now)
    if before is None or after is None:
        return before != after
    return abs(after - before) > max(timedelta(minutes=5), abs(before - now) / 5)
