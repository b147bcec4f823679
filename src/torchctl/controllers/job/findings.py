"""Collects the findings of each step of a job in one pass, by the condition that each becomes."""

from dataclasses import dataclass

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import JobStatus, WorkspaceStatus
from torchctl.controllers.finding import Finding
from torchctl.controllers.job.attempts.outcome import Outcome, sentence
from torchctl.controllers.job.attempts.stage import Ended, Life, Run, Settle, Suspended, Wait
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.steps import admission, reload, workers
from torchctl.controllers.job.steps.syncing import Syncing
from torchctl.controllers.job.steps.workspace import missing_claim
from torchctl.controllers.job.template.freezing import Frozen
from torchctl.runtime.conditions import find

__all__ = ["Found", "findings"]


@dataclass(frozen=True, slots=True)
class Found:
    """The findings of a pass, from which it decides what to do.

    Args:
        syncing: The state of the workspace's sync; None without a template.
        coordinator: Whether the coordinator is on.
    """

    case: Case
    frozen: Frozen
    dependencies: Finding
    syncing: Syncing | None
    coordinator: bool


def findings(found: Found, life: Life) -> dict[JobCondition, Finding]:
    """One finding for each condition of a job.

    A step that this pass cannot judge keeps what was known of it once the job was started; before that it waits.
    """
    frozen, needs, end = found.frozen, found.dependencies, life.outcome
    waits = Finding(False, JobReason.NOT_STARTED, _waits_for(frozen, needs))

    def known(type_: JobCondition) -> Finding:
        was = find(found.case.status.conditions, type_) if found.case.status.start_time else None
        return Finding(was.status == "True", was.reason, was.message) if was else waits

    ready = known(JobCondition.WORKERS_READY) if found.case.observed.was_started else waits
    return {
        JobCondition.ACCEPTED: frozen.accepted,
        JobCondition.QUEUE_FOUND: frozen.queue_found,
        JobCondition.DEPENDENCIES_MET: needs,
        JobCondition.WORKSPACE_READY: _workspace(found, end, waits) or known(JobCondition.WORKSPACE_READY),
        JobCondition.ADMITTED: _admitted(found, life, waits) or known(JobCondition.ADMITTED),
        JobCondition.WORKERS_READY: _workers(found, life) or ready,
        JobCondition.SUSPENDED: _suspended(life),
        JobCondition.COMPLETE: _complete(end),
        JobCondition.FAILED: _failed(end),
    }


def _waits_for(frozen: Frozen, needs: Finding) -> str:
    if not frozen.accepted.ok:
        return "waits for the spec to be accepted"
    if not frozen.queue_found.ok:
        return "waits for the queue"
    if not needs.ok:
        return "waits for the jobs that it depends on"
    return f"waits for PersistentVolumeClaim {frozen.missing_claim}" if frozen.missing_claim else "waits for its turn"


def _workspace(found: Found, end: Outcome | None, waits: Finding) -> Finding | None:
    if found.frozen.missing_claim:
        return missing_claim(found.frozen.missing_claim)
    if found.syncing is None:
        return None
    there = found.syncing.report
    if end is not None and found.syncing.failure is None and there is not None and there.revision:
        return _last_workspace(found, there)
    return found.syncing.finding if found.dependencies.ok or found.syncing.finding.ok else waits


def _last_workspace(found: Found, there: WorkspaceStatus) -> Finding:
    """The workspace of a job that ends: what was said of it stays, unless it said what comes next."""
    assert found.syncing is not None
    said = found.syncing.finding
    if said.ok and said.reason != JobReason.RELOADING:
        return said
    return Finding(True, JobReason.WORKSPACE_READY, reload.in_the_end(found.case.observed.job, there))


def _admitted(found: Found, life: Life, waits: Finding) -> Finding | None:
    """Returns the finding on admission, which an attempt that ends loses, and a job that ends keeps as it was known."""
    case = found.case
    match life.stage:
        case Wait() | Suspended():
            return waits
        case Run() | Ended() if case.template is not None:
            return admission.assess(case.observed, case.template, coordinator=found.coordinator)
        case _:
            return None


def _workers(found: Found, life: Life) -> Finding | None:
    case = found.case
    match life.stage:
        case Ended():
            return Finding(False, JobReason.FINISHED, "the job has ended")
        case Suspended():
            return Finding(False, JobReason.SUSPENDED, "the job is suspended: set spec.suspend to false to go on")
        case Settle():
            lost = sentence(life.status.failure) if life.status.failure else "a worker was lost"
            return Finding(False, JobReason.INCIDENT, f"{lost}; waits for what else is lost with it", warn=True)
        case Wait():
            return Finding(False, JobReason.RESTARTING, _next_attempt(life.status))
        case Run():
            return workers.assess(case.observed, case.template, case.now) if case.template is not None else None


def _next_attempt(status: JobStatus) -> str:
    """Announces the next attempt in words that stay the same while it waits: a clock time, and no countdown."""
    due = status.next_attempt_time
    after = f" after {due.strftime('%H:%M:%S')} UTC, once no pod of an earlier attempt runs" if due is not None else ""
    return f"attempt {status.attempt} begins{after}"


def _suspended(life: Life) -> Finding:
    if isinstance(life.stage, Suspended):
        return Finding(True, JobReason.SUSPENDED, "spec.suspend is true: no worker runs until it is false")
    return Finding(False, JobReason.NOT_SUSPENDED, "the job is not suspended")


def _complete(end: Outcome | None) -> Finding:
    if end is None:
        return Finding(False, JobReason.NOT_ENDED, "the job has not ended")
    if end.failure is None:
        return Finding(True, end.reason, end.message)
    return Finding(False, end.reason, "the job failed")


def _failed(end: Outcome | None) -> Finding:
    if end is None:
        return Finding(False, JobReason.NOT_ENDED, "nothing has failed")
    if end.failure is None:
        return Finding(False, end.reason, "nothing has failed")
    return Finding(True, end.reason, end.message, warn=True)
