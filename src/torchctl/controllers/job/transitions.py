"""Derives the Events that go with a change of status."""

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import JobStatus
from torchctl.api.phases import Phase
from torchctl.api.words import EventType
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Condition

__all__ = ["transitions"]

_EVENTS = {str(reason): reason.event for reason in JobReason}
"""Types of Events by our reasons. Reasons of Kubernetes' own are not among them, because each is a trouble."""
_STEPS = (
    JobCondition.ACCEPTED,
    JobCondition.QUEUE_FOUND,
    JobCondition.DEPENDENCIES_MET,
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
    if new is None or (old is not None and (old.status, old.reason) == (new.status, new.reason)):
        return None
    type_ = _EVENTS.get(new.reason, EventType.WARNING)
    return (type_, new.reason, new.message) if type_ else None


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
