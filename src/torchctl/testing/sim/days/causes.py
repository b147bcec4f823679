"""Which causes of incidents a day may have for a job: those that somebody brought about. Pure."""

from collections.abc import Iterable, Mapping

from torchctl.api.causes import Cause
from torchctl.testing.sim.days.actions import (
    Action,
    Day,
    DeleteChild,
    DeletePod,
    Evict,
    Fail,
    LoseNode,
    RemoveNode,
    Submit,
)

__all__ = ["unfounded"]

Causes = Iterable[Cause]


def unfounded(day: Day, incidents: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Returns the incidents whose cause nobody brought about, of all jobs by name."""
    found = []
    for job, causes in incidents.items():
        possible = {cause.value for action in day.actions for cause in _brings(action, job)}
        possible |= {Cause.PREEMPTED.value} if day.coordinated else set()  # each one is judged when it is decided
        found += [
            f"{job}: an incident of cause {one} that nothing brought about" for one in causes if one not in possible
        ]
    return found


def _brings(action: Action, job: str) -> Causes:
    """Returns the causes of incidents that an action may bring about for a job."""
    if isinstance(action, LoseNode | RemoveNode):
        return (Cause.NODE_LOST, Cause.EVICTED, Cause.DELETED, Cause.VANISHED, Cause.BELOW_MINIMUM)
    if isinstance(action, Submit | Fail | Evict | DeletePod | DeleteChild) and action.job == job:
        return (*_causes(action), Cause.BELOW_MINIMUM)
    return ()


def _causes(action: Submit | Fail | Evict | DeletePod | DeleteChild) -> Causes:
    match action:
        case Submit(fate=fate):
            return (Cause.ERROR,) if fate.failing_attempts else ()
        case Fail(reason=reason):
            return (Cause.OOM_KILLED,) if reason else (Cause.ERROR,)
        case Evict():
            return (Cause.EVICTED,)
        case DeletePod() | DeleteChild():
            return (Cause.DELETED, Cause.VANISHED)
