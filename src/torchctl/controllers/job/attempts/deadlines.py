"""Limits how long a job may run and how long its workers may take to start.

Active time begins when the attempt is admitted: when a gang scheduler has placed all pods or, without one, when its Job
is made. Time in a queue or in suspension does not count. status.activeSeconds adds up the attempts that have ended.
"""

from collections.abc import Iterator
from datetime import datetime

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import Failure, JobStatus
from torchctl.controllers.job.attempts.outcome import Outcome
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.steps import workers
from torchctl.runtime.conditions import find

__all__ = ["active_s", "due_s", "exceeded"]


def active_s(status: JobStatus, until: datetime) -> int:
    """Active seconds of all attempts until a moment."""
    since = status.attempt_active_time
    return status.active_seconds + (max(0, int((until - since).total_seconds())) if since is not None else 0)


def exceeded(case: Case) -> Outcome | None:
    """The end that a deadline makes, None while none has passed. A next attempt has what the earlier ones left."""
    return next((end for left, end in _deadlines(case) if left <= 0), None)


def due_s(case: Case) -> float | None:
    """Seconds until the next deadline passes; None if none runs."""
    if case.status.attempt_active_time is None:
        return None
    return min((left for left, _ in _deadlines(case)), default=None)


def _deadlines(case: Case) -> Iterator[tuple[float, Outcome]]:
    status, policy, name = case.status, case.policy, case.observed.job.metadata.name
    since = status.attempt_active_time
    running_s = (case.now - since).total_seconds() if since is not None else 0.0
    if policy.active_deadline_seconds is not None:
        limit = policy.active_deadline_seconds
        message = f"TorchrunJob {name} was active for runPolicy.activeDeadlineSeconds, {limit} s: submit it with more"
        yield limit - status.active_seconds - running_s, _end(JobReason.DEADLINE_EXCEEDED, message)
    if policy.startup_timeout_seconds is not None and since is not None and not _has_started(case):
        limit = policy.startup_timeout_seconds
        ready = find(status.conditions, JobCondition.WORKERS_READY)
        why = f": {ready.message}" if ready is not None else ""
        message = f"the workers of TorchrunJob {name} were not ready within startupTimeoutSeconds, {limit} s{why}"
        yield limit - running_s, _end(JobReason.STARTUP_TIMEOUT, message)


def _has_started(case: Case) -> bool:
    """Whether the workers were ready, or are and nobody has looked since."""
    if case.status.attempt_ready_time is not None:
        return True
    return case.template is not None and workers.standing(case.observed) >= case.template.min_nodes


def _end(reason: JobReason, message: str) -> Outcome:
    return Outcome(reason, message, Failure(reason=reason, message=message))
