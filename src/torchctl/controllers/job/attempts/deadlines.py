"""How long a job may run and how long its workers may take to start.

Time is active from the moment at which the attempt is admitted, which is when a gang scheduler has placed all pods, or
where there is none, when its Job is made: what a job waits for in a queue, and what it is suspended for, is not its
own. The attempts that have ended are added up in status.activeSeconds.
"""

from datetime import datetime

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.effective import EffectiveRunPolicy
from torchctl.api.job import Failure, JobStatus
from torchctl.controllers.job.attempts.outcome import Outcome
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import workers
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.conditions import find

__all__ = ["active_s", "due_s", "exceeded"]


def active_s(status: JobStatus, until: datetime) -> int:
    """Active seconds of all attempts until a moment."""
    since = status.attempt_active_time
    return status.active_seconds + (max(0, int((until - since).total_seconds())) if since is not None else 0)


def exceeded(
    observed: Observed, template: FrozenTemplate | None, policy: EffectiveRunPolicy, now: datetime
) -> Outcome | None:
    """The end that a deadline makes, None while none has passed. A next attempt has what the earlier ones left."""
    passed = [end for left, end in _deadlines(observed, template, policy, now) if left <= 0]
    return passed[0] if passed else None


def due_s(
    observed: Observed, template: FrozenTemplate | None, policy: EffectiveRunPolicy, now: datetime
) -> float | None:
    """Seconds until the next deadline passes; None where none runs."""
    if observed.job.status.attempt_active_time is None:
        return None
    return min((left for left, _ in _deadlines(observed, template, policy, now)), default=None)


def _deadlines(
    observed: Observed, template: FrozenTemplate | None, policy: EffectiveRunPolicy, now: datetime
) -> list[tuple[float, Outcome]]:
    status, name = observed.job.status, observed.job.metadata.name
    since, found = status.attempt_active_time, []
    running_s = (now - since).total_seconds() if since is not None else 0.0
    if policy.active_deadline_seconds is not None:
        limit = policy.active_deadline_seconds
        message = f"TorchrunJob {name} was active for runPolicy.activeDeadlineSeconds, {limit} s: submit it with more"
        found.append((limit - status.active_seconds - running_s, _end(JobReason.DEADLINE_EXCEEDED, message)))
    # Nobody may have looked when they became ready.
    are_ready = template is not None and workers.standing(observed) >= template.min_nodes
    starts = since is not None and status.attempt_ready_time is None and not are_ready
    if policy.startup_timeout_seconds is not None and starts:
        limit = policy.startup_timeout_seconds
        ready = find(status.conditions, JobCondition.WORKERS_READY)
        why = f": {ready.message}" if ready is not None else ""
        message = f"the workers of TorchrunJob {name} were not ready within startupTimeoutSeconds, {limit} s{why}"
        found.append((limit - running_s, _end(JobReason.STARTUP_TIMEOUT, message)))
    return found


def _end(reason: JobReason, message: str) -> Outcome:
    return Outcome(reason, message, Failure(reason=reason, message=message))
