"""Which Events go with a change of status."""

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import JobStatus
from torchctl.api.phases import Phase
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Condition

__all__ = ["transitions"]

_WAITING = frozenset(
    {
        JobReason.ACCEPTED,
        JobReason.FINISHED,
        JobReason.NO_GANG,
        JobReason.NO_WORKSPACE,
        JobReason.NOT_ENDED,
        JobReason.NOT_STARTED,
        JobReason.QUEUE_FOUND,
        JobReason.SYNCING,
        JobReason.WAITING_FOR_ADMISSION,
        JobReason.WAITING_FOR_QUEUE,
        JobReason.WORKERS_STARTING,
        JobReason.WORKERS_READY,
    }
)
"""Reasons that need no Event of their own: nothing is wrong, and the phase tells the same."""
_STEPS = (
    JobCondition.ACCEPTED,
    JobCondition.QUEUE_FOUND,
    JobCondition.WORKSPACE_READY,
    JobCondition.ADMITTED,
    JobCondition.WORKERS_READY,
)
_DECIDES = {
    Phase.SYNCING: JobCondition.WORKSPACE_READY,
    Phase.QUEUED: JobCondition.ADMITTED,
    Phase.STARTING: JobCondition.WORKERS_READY,
    Phase.RUNNING: JobCondition.WORKERS_READY,
    Phase.SUSPENDED: JobCondition.SUSPENDED,
    Phase.SUCCEEDED: JobCondition.COMPLETE,
    Phase.FAILED: JobCondition.FAILED,
}


def transitions(old: JobStatus, new: JobStatus) -> tuple[tuple[str, str, str], ...]:
    """The Events as (type, reason, message): one for each step that met or lost a problem, one for a new phase.

    A message that changes while status and reason stay is no transition.
    """
    events = [event for type_ in _STEPS if (event := _turned(find(old.conditions, type_), find(new.conditions, type_)))]
    if new.phase and new.phase != old.phase:
        events += _phase(Phase(new.phase), new, told={reason for _, reason, _ in events})
    return tuple(events)


def _turned(old: Condition | None, new: Condition | None) -> tuple[str, str, str] | None:
    if new is None or new.reason in _WAITING:
        return None
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return None
    calm = new.status == "True" or new.reason == JobReason.WAITING_FOR_UPLOAD
    return "Normal" if calm else "Warning", new.reason, new.message


def _phase(phase: Phase, new: JobStatus, told: set[str]) -> list[tuple[str, str, str]]:
    if phase is Phase.PENDING:
        return []  # what it waits for is told by the step that waits
    condition = find(new.conditions, _DECIDES.get(phase, JobCondition.WORKERS_READY))
    if condition is None or condition.reason in told:
        return []
    if condition.reason == JobReason.NOT_STARTED:
        return [("Normal", phase, "all is ready for the workers")]
    if phase is Phase.FAILED:
        return [("Warning", condition.reason, condition.message)]
    return [("Normal", phase, condition.message)]
