"""Whether another attempt follows an incident, and when."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from torchctl.api.causes import Budget, Cause, cause_named
from torchctl.api.common import RestartPolicy
from torchctl.api.conditions import JobReason
from torchctl.api.effective import EffectiveRunPolicy
from torchctl.api.exitcodes import ExitClass, exit_code
from torchctl.api.job import Failure, JobStatus
from torchctl.api.jobstatus import Restarts
from torchctl.controllers.settings import Restarting

__all__ = ["Refused", "counted", "next_attempt_time", "refused"]


@dataclass(frozen=True, slots=True)
class Refused:
    """No further attempt; `why` completes the sentence about the failure."""

    reason: JobReason
    why: str


def refused(
    policy: EffectiveRunPolicy, settings: Restarting, cause: Cause, failure: Failure, before: Restarts
) -> Refused | None:
    """Why no attempt follows this incident; None where one does.

    restartPolicy ExitCode judges what the program did itself: what others did to it says nothing about its code.
    """
    if policy.restart_policy is RestartPolicy.NEVER:
        return Refused(JobReason.WORKER_FAILED, "restartPolicy is Never")
    code = failure.exit_code if cause is Cause.ERROR and policy.restart_policy is RestartPolicy.EXIT_CODE else None
    if code is not None and exit_code(code).class_ is ExitClass.PERMANENT:
        return Refused(JobReason.WORKER_FAILED, f"restartPolicy ExitCode does not retry exit code {code}")
    limit = _limit(policy, settings, cause.budget)
    paid = {name: known.budget for name in before.by_cause if (known := cause_named(name)) is not None}
    used = sum(number for name, number in before.by_cause.items() if paid.get(name) is cause.budget)
    if used >= limit:
        return Refused(_EXHAUSTED if limit else JobReason.WORKER_FAILED, f"{_spent(limit)} ({_NAMES[cause.budget]})")
    return None


_EXHAUSTED = JobReason.RESTARTS_EXHAUSTED
_NAMES = {
    Budget.USER: "runPolicy.maxRestarts",
    Budget.INFRASTRUCTURE: "the operator's --max-infrastructure-restarts",
    Budget.PREEMPTION: "the operator's --max-preemption-restarts",
}


def counted(status: JobStatus, cause: Cause, settings: Restarting, lost: datetime) -> Restarts:
    """The restarts with one more incident; `consecutive` starts again after a long time of all workers running."""
    before, ready = status.restarts, status.attempt_ready_time
    stable = ready is not None and (lost - ready).total_seconds() >= settings.stable_s
    return Restarts(
        total=before.total + 1,
        by_cause={**before.by_cause, cause: before.by_cause.get(cause, 0) + 1},
        consecutive=1 if stable else before.consecutive + 1,
    )


def next_attempt_time(settings: Restarting, consecutive: int, now: datetime) -> datetime:
    """When the attempt after the `consecutive`-th incident in a row (from 1) begins at the earliest."""
    doublings = min(consecutive - 1, 30)
    wait = timedelta(seconds=min(settings.backoff_s * 2**doublings, settings.max_backoff_s))
    return (now + wait).replace(microsecond=0)


def _limit(policy: EffectiveRunPolicy, settings: Restarting, budget: Budget) -> int:
    return {
        Budget.USER: policy.max_restarts,
        Budget.INFRASTRUCTURE: settings.max_infrastructure,
        Budget.PREEMPTION: settings.max_preemption,
    }[budget]


def _spent(limit: int) -> str:
    return (
        f"all {limit} restarts are used"
        if limit > 1
        else "the one restart is used"
        if limit
        else "no restart is allowed"
    )
