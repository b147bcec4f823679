"""Takes the attempt up from a job's children if its status is lost, or was set back to an older one. Pure.

Status is written before a child is made, so children that are ahead of it say that it is no longer what was written.
What they tell of is taken up as it is, and what stood in status alone is judged so that nothing trains twice: each
attempt that status knows nothing of counts for an incident of every budget. docs/design/status.md has the table.
"""

from datetime import datetime

import msgspec

from torchctl.api.causes import Budget, Cause
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.jobstatus import JobStatus, Restarts, WorkspaceStatus
from torchctl.api.phases import Phase
from torchctl.controllers.job.observed import Observed, Started
from torchctl.controllers.job.steps import syncpod, tries
from torchctl.runtime.conditions import carry_over, find
from torchctl.runtime.kinds import Condition

__all__ = ["is_recovered", "recovered"]

_KEPT = (JobCondition.ACCEPTED, JobCondition.QUEUE_FOUND)
"""Conditions that are of no attempt."""
_COUNTED = {Budget.USER: Cause.ERROR, Budget.INFRASTRUCTURE: Cause.VANISHED, Budget.PREEMPTION: Cause.PREEMPTED}
"""The cause that stands for what nobody knows of a budget."""


def recovered(observed: Observed, now: datetime) -> JobStatus | None:
    """Returns the status that the children tell of; None if status knows of them all.

    Args:
        now: The time, aware of its zone.
    """
    status, started = observed.job.status, observed.started
    if started is None or not (_is_lost(status) or (started.made and started.attempt > status.attempt)):
        return None
    conditions = carry_over(status.conditions, _conditions(observed, started), now)
    return msgspec.structs.replace(
        status,
        phase=status.phase or Phase.STARTING,
        conditions=conditions,
        attempt=started.attempt,
        restarts=_restarts(status.restarts, started.attempt - status.attempt),
        queue_revision=started.template or status.queue_revision,
        workspace=_workspace(observed) or status.workspace,
        failure=None,
        incident=None,
        next_attempt_time=None,
        attempt_start_time=started.since,
        attempt_active_time=None,
        attempt_ready_time=None,
        requeues=0,
        host_uid="",
        start_time=status.start_time or started.since,
    )


def is_recovered(status: JobStatus) -> bool:
    """Whether a status was just taken up from the children, and no pass has judged these since."""
    ready = find(status.conditions, JobCondition.WORKERS_READY)
    return ready is not None and ready.reason == JobReason.STATUS_LOST


def _is_lost(status: JobStatus) -> bool:
    """Whether nothing is left of a status: the first one that is written has conditions."""
    return not status.conditions


def _conditions(observed: Observed, started: Started) -> tuple[Condition, ...]:
    """The steps before the workers, which an attempt that was started had behind it; the others are judged anew."""
    kept = [condition for condition in observed.job.status.conditions if condition.type in _KEPT]
    before = f"it was so before {started.child} was made"
    steps = [
        Condition(JobCondition.DEPENDENCIES_MET, "True", JobReason.DEPENDENCIES_MET, before),
        Condition(JobCondition.WORKSPACE_READY, "True", JobReason.WORKSPACE_READY, before),
    ]
    message = (
        f"status knew nothing of attempt {started.attempt}, because it was lost or set back: taken up from "
        f"{started.child}, and the restarts before it count for each cause"
    )
    return (*kept, *steps, Condition(JobCondition.WORKERS_READY, "False", JobReason.STATUS_LOST, message))


def _restarts(known: Restarts, attempts: int) -> Restarts:
    """The restarts with those attempts added to what each budget has paid."""
    if not attempts:
        return known
    recent = known.recent_by_cause
    more = {cause: recent.get(cause, 0) + attempts for cause in _COUNTED.values()}
    return msgspec.structs.replace(known, recent_by_cause={**recent, **more}, consecutive=known.consecutive + attempts)


def _workspace(observed: Observed) -> WorkspaceStatus | None:
    """Returns what the last sync pod that brought the workspace has reported."""
    brought = [pod for pod in observed.sync_pods if tries.fetched(pod)]
    return syncpod.report(max(brought, key=tries.number), None) if brought else None
