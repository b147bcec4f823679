"""Step five: the workers. How many are ready, and what keeps the others."""

from datetime import datetime, timedelta

from torchctl.api import names
from torchctl.api.conditions import JobReason
from torchctl.api.counts import agree, counted, every
from torchctl.api.job import WorkerCounts
from torchctl.controllers.finding import Finding
from torchctl.controllers.job import delays, pods, success
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.template.frozen import FrozenTemplate

__all__ = ["are_overdue", "assess", "count", "look_again_s", "standing"]

OVERDUE = timedelta(seconds=30)
"""Time without a new pod after which the missing pods of a Job count as refused, not as late."""


def count(observed: Observed) -> WorkerCounts:
    """Counts the workers of the attempt by state; a worker that is ready is running too."""
    going = [pod for pod in observed.pods if not pods.failed(pod) and not pods.has_finished(pod)]
    phases = [pod.status.phase for pod in going]
    return WorkerCounts(
        pending=sum(phase in ("Pending", "") for phase in phases),
        ready=sum(map(pods.is_up, going)),
        running=phases.count("Running"),
        succeeded=len(success.done(observed)),
        failed=sum(map(pods.failed, observed.pods)),
    )


def standing(observed: Observed) -> int:
    """The number of workers that are up or done."""
    return len(success.done(observed) | {pods.index(pod) for pod in observed.pods if pods.is_up(pod)})


def assess(observed: Observed, template: FrozenTemplate, now: datetime) -> Finding:
    """Judges the workers from their pods. An elastic job is ready with as many as it needs at least."""
    name = names.worker_job(observed.job.metadata.name, observed.job.status.attempt)
    if observed.worker_job is None:
        return Finding(False, JobReason.NOT_STARTED, f"Job {name} has not been created yet")
    if observed.stands_still:
        return Finding(False, JobReason.SUSPENDED_BY_OTHERS, f"Job {name} is suspended: it has no pods until released")
    counts, wanted = count(observed), template.desired(observed.job.spec)
    ready, are = standing(observed), agree(wanted, "is", "are")
    workers = f"{counted(wanted, 'worker')} of Job {name}"
    if template.elastic and success.has_succeeded(observed):
        return Finding(True, JobReason.WORKERS_READY, f"worker 0 of Job {name} has succeeded: the others are stopped")
    if template.elastic and ready >= template.min_nodes:
        reason = JobReason.PODS_NOT_CREATED if observed.create_failure else JobReason.WORKERS_READY
        return Finding(True, reason, f"{ready} of {workers} {are} ready{_missing(observed, wanted, now)}")
    wrong = _problem(observed)
    if wrong is not None:
        return Finding(False, *wrong, warn=True)
    formed = template.elastic is not None and observed.job.status.attempt_ready_time is not None
    if are_overdue(observed, template, now) and (observed.create_failure or not formed):
        why = pods.shorten(observed.create_failure) or f"see the Events of `kubectl describe job {name}`"
        made = _made(observed, wanted)
        them = agree(wanted - made, "it", "them")
        message = f"Job {name} has {made} of {counted(wanted, 'pod')}, a quota or a policy may refuse {them}: {why}"
        return Finding(False, JobReason.PODS_NOT_CREATED, message, warn=True)
    if ready >= wanted:
        return Finding(True, JobReason.WORKERS_READY, f"{every(wanted, 'worker')} of Job {name} {are} ready")
    if formed:
        needs = f"at least {template.min_nodes} {agree(template.min_nodes, 'has', 'have')} to be"
        there = f"{counted(ready, 'worker')} of Job {name} {agree(ready, 'is', 'are')} ready"
        message = f"{there}, {needs}: waits for others{_missing(observed, wanted, now)}"
        return Finding(False, JobReason.BELOW_MINIMUM, message, warn=True)
    late = delays.first_late(observed, now)
    if late is not None:
        message = f"{ready} of {workers} {are} ready; {delays.sentence(late, observed.warning)}"
        return Finding(False, JobReason.WORKERS_LATE, message, warn=True)
    started = f"{counts.running + counts.succeeded} of {workers} {agree(wanted, 'runs', 'run')}"
    return Finding(False, JobReason.WORKERS_STARTING, started)


def _missing(observed: Observed, wanted: int, now: datetime) -> str:
    """Explains why an elastic job has too few workers: the Job controller's words, or a late pod's."""
    why = pods.shorten(observed.create_failure)
    if why:
        return f"; {wanted - _made(observed, wanted)} cannot be created: {why}"
    wrong, late = _problem(observed), delays.first_late(observed, now)
    if wrong is not None:
        return f"; {wrong[1]}"
    return f"; {delays.sentence(late, observed.warning)}" if late is not None else ""


def _problem(observed: Observed) -> tuple[str, str] | None:
    """Returns reason and message of the first worker that has a known problem."""
    going = (pod for pod in observed.pods if not pods.has_ended(pod))
    ordered = sorted(going, key=lambda pod: pods.index(pod) or 0)
    return next(filter(None, map(pods.problem, ordered)), None)


def _made(observed: Observed, wanted: int) -> int:
    """Counts the workers that have a pod. The lost pods of an elastic job stay beside their replacements."""
    there = success.done(observed) | {pods.index(pod) for pod in observed.pods if not pods.failed(pod)}
    return sum(index in there for index in range(wanted))


def are_overdue(observed: Observed, template: FrozenTemplate, now: datetime) -> bool:
    """Whether the Job controller should have created the pods by now."""
    due = _due(observed, template)
    return due is not None and now >= due


def look_again_s(observed: Observed, template: FrozenTemplate, now: datetime) -> float | None:
    """Returns seconds until missing pods are overdue, then `OVERDUE`, because no event tells when the refusal ends."""
    due = _due(observed, template)
    return None if due is None else max((due - now).total_seconds(), 0.0) or OVERDUE.total_seconds()


def _due(observed: Observed, template: FrozenTemplate) -> datetime | None:
    """Returns when missing pods are overdue.

    The newest pod counts, because the Job controller makes the pods of a large Job bit by bit.
    """
    job = observed.worker_job
    wanted = template.desired(observed.job.spec)
    if job is None or job.spec.get("suspend") or _made(observed, wanted) >= wanted:
        return None
    if job.status.ends(succeeding=False):
        return None
    born = [pod.metadata.creation_timestamp for pod in observed.pods]
    moments = (job.metadata.creation_timestamp, job.status.start_time, *born)
    return max((moment + OVERDUE for moment in moments if moment is not None), default=None)
