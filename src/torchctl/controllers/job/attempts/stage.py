"""The stages of a job's life, each derived from what its status says."""

from dataclasses import dataclass
from datetime import datetime

from torchctl.api.conditions import JobCondition
from torchctl.api.job import JobStatus
from torchctl.api.jobstatus import Incident
from torchctl.controllers.job.attempts.outcome import Outcome
from torchctl.runtime.conditions import is_true

__all__ = ["Ended", "Life", "Run", "Settle", "Stage", "Suspended", "Wait", "is_suspended", "stage_of"]


@dataclass(frozen=True, slots=True)
class Run:
    """The attempt is prepared, started, or runs."""


@dataclass(frozen=True, slots=True)
class Settle:
    """An incident is open: the operator waits for what else is lost with the first pod."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class Wait:
    """The next attempt waits for its back-off, and for the pods of the earlier ones."""

    due: datetime


@dataclass(frozen=True, slots=True)
class Suspended:
    """The job stands still until spec.suspend is false."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The job has just succeeded or failed, for ever."""

    outcome: Outcome


Stage = Run | Settle | Wait | Suspended | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The status and the stage of a job after a decision.

    Args:
        status: The job's new attempts, restarts and times; the conditions are still the old ones.
        stage: The stage that this pass acts on.
        look_again_s: Seconds after which something is due that no event will tell.
    """

    status: JobStatus
    stage: Stage
    look_again_s: float | None = None

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the job, or None while it has not ended."""
        return self.stage.outcome if isinstance(self.stage, Ended) else None


def stage_of(status: JobStatus) -> Run | Settle | Wait | Suspended:
    """The stage of a job that has not ended. The first that fits holds: an incident that is open is settled first."""
    if status.incident is not None:
        return Settle(status.incident)
    if is_suspended(status):
        return Suspended()
    return Run() if status.next_attempt_time is None else Wait(status.next_attempt_time)


def is_suspended(status: JobStatus) -> bool:
    """Whether status says that the job stands still; from then on its pods may be stopped."""
    return is_true(status.conditions, JobCondition.SUSPENDED)
