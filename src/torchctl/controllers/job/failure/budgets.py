"""Decides whether another attempt follows an incident, and when."""

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

__all__ = ["NoRestart", "counted", "next_attempt_time", "refused"]


@dataclass(frozen=True, slots=True)
class NoRestart:
    """A decision against another attempt; `why` completes the sentence about the failure."""

    reason: JobReason
    why: str


def refused(
    policy: EffectiveRunPolicy, settings: Restarting, cause: Cause, failure: Failure, restarts: Restarts
) -> NoRestart | None:
    """Explains why no attempt follows this incident; None if one does.

    restartPolicy ExitCode judges only incidents that the program caused itself; others say nothing about its exit code.

    Args:
        restarts: With this incident counted.
    """
    if policy.restart_policy is RestartPolicy.NEVER:
        return NoRestart(JobReason.WORKER_FAILED, "restartPolicy is Never")
    code = failure.exit_code if cause is Cause.ERROR and policy.restart_policy is RestartPolicy.EXIT_CODE else None
    if code is not None and exit_code(code).class_ is ExitClass.PERMANENT:
        return NoRestart(JobReason.WORKER_FAILED, f"restartPolicy ExitCode does not retry exit code {code}")
    limit, name = _limit(policy, settings, cause.budget)
    if _used(restarts, cause.budget) > limit:
        return NoRestart(_EXHAUSTED if limit else JobReason.WORKER_FAILED, f"{_spent(limit)} ({name})")
    return None


_EXHAUSTED = JobReason.RESTARTS_EXHAUSTED
_HUNG_S = 1800.0
"""The longest time-out of a collective that torch has by default: gloo's; NCCL's watchdog waits for 600 s."""


def counted(status: JobStatus, cause: Cause, settings: Restarting, lost: datetime) -> tuple[Cause, Restarts]:
    """The restarts with one more incident, and the cause that it is counted under.

    After a long time of all workers running it is the first of a new series. A run that ends because a peer was lost
    may have stood still until a collective timed out, so that time does not count as running. A peer that is lost
    again, without any other incident between, is the program's.
    """
    before, ready = status.restarts, status.attempt_ready_time
    enough_s = settings.stable_s + (_HUNG_S if cause is Cause.PEER_LOST else 0.0)
    stable = ready is not None and (lost - ready).total_seconds() >= enough_s
    recent = {} if stable else before.recent_by_cause
    if cause is Cause.PEER_LOST and recent and set(recent) <= {Cause.PEER_LOST, Cause.PEER_LOST_AGAIN}:
        cause = Cause.PEER_LOST_AGAIN
    return cause, Restarts(
        total=before.total + 1,
        by_cause=_with_one(before.by_cause, cause),
        recent_by_cause=_with_one(recent, cause),
        consecutive=1 if stable else before.consecutive + 1,
    )


def _with_one(known: dict[str, int], cause: Cause) -> dict[str, int]:
    return {**known, cause: known.get(cause, 0) + 1}


def next_attempt_time(settings: Restarting, consecutive: int, now: datetime) -> datetime:
    """Returns the earliest start of the attempt after the `consecutive`-th incident in a row (from 1)."""
    doublings = min(consecutive - 1, 30)
    wait = timedelta(seconds=min(settings.backoff_s * 2**doublings, settings.max_backoff_s))
    return (now + wait).replace(microsecond=0)


def _used(restarts: Restarts, budget: Budget) -> int:
    """Incidents since the workers last ran for long that this budget pays."""
    recent = restarts.recent_by_cause
    paid = {name: known.budget for name in recent if (known := cause_named(name)) is not None}
    return sum(number for name, number in recent.items() if paid.get(name) is budget)


def _limit(policy: EffectiveRunPolicy, settings: Restarting, budget: Budget) -> tuple[int, str]:
    """Returns the number of restarts in a budget, and the setting that gives it."""
    if budget is Budget.USER:
        return policy.max_restarts, "runPolicy.maxRestarts"
    if budget is Budget.PREEMPTION:
        return settings.max_preemption, "the operator's --max-preemption-restarts"
    asked, most = policy.max_infrastructure_restarts, settings.max_infrastructure
    if asked is not None and asked <= most:
        return asked, "runPolicy.maxInfrastructureRestarts"
    return most, "the operator's --max-infrastructure-restarts"


def _spent(limit: int) -> str:
    if limit > 1:
        return f"all {limit} restarts are used"
    return "the one restart is used" if limit else "no restart is allowed"
