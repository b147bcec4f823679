"""The life of a job: attempts and what ends them, suspension, deadlines.

What has to be remembered of it stands in status: the number of the attempt, the incident that is open, the restarts
that were used, since when the workers are ready. `advance` says what should stand there now. Where that differs from
what does, the pass writes it (guarded by resourceVersion) and does nothing else; the next one acts on it. So a
crash between any two calls is followed by the same decision or by its consequence, and never by a second one.

    prepare -> run -> (lost: incident) -> wait for back-off and earlier pods -> run ...
                 \\-> suspended -> wait -> run ...            every one of them -> ended
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

import msgspec

from torchctl.api import effective, names
from torchctl.api.causes import Cause, cause_named
from torchctl.api.common import RunPolicy
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.counts import counted
from torchctl.api.effective import EffectiveRunPolicy
from torchctl.api.job import Failure, JobStatus, QueueUpdatePolicy, TorchrunJob
from torchctl.api.jobstatus import Incident
from torchctl.api.kube import Job
from torchctl.api.queue import QueueSpec
from torchctl.controllers.job import pods, success
from torchctl.controllers.job.attempts import deadlines
from torchctl.controllers.job.attempts.outcome import Outcome
from torchctl.controllers.job.failure import budgets, losses
from torchctl.controllers.job.failure.evictions import evicted_around
from torchctl.controllers.job.failure.losses import Loss
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import workers
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.settings import Restarting
from torchctl.runtime.conditions import find, is_true

__all__ = ["Life", "Stage", "advance", "is_suspended", "run_policy"]


_UNEXPLAINED = (Cause.DELETED, Cause.VANISHED)


class Stage(Enum):
    """What an unfinished job is about."""

    RUN = auto()
    """Its attempt is prepared, started, or runs."""
    SETTLE = auto()
    """An incident is open: what else is lost with the first pod is waited for."""
    WAIT = auto()
    """The next attempt waits for its back-off, and for the pods of the earlier ones."""
    SUSPENDED = auto()
    """It stands still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Where a job stands.

    Args:
        status: What status should say of attempts, restarts and times; its conditions are those of before.
        outcome: How the job has ended.
        look_again_s: Seconds after which something is due that no event will tell.
    """

    status: JobStatus
    stage: Stage
    outcome: Outcome | None = None
    look_again_s: float | None = None


def advance(
    observed: Observed, template: FrozenTemplate | None, failed: Outcome | None, settings: Restarting, now: datetime
) -> Life:
    """Decides where an unfinished job stands.

    Args:
        template: None where there is none (yet, or any more).
        failed: An end that comes before the workers of an attempt do; those that run go on.
    """
    status = observed.job.status
    if status.incident is not None:
        return _settle(observed, template, status.incident, settings, now)
    if is_suspended(status):
        return _suspended(observed, template, now)
    if failed is not None and not observed.was_started:
        return _ended(status, failed, now)
    if observed.was_started:
        turned = _attempt(observed, template, settings, now)
        if turned is not None:
            return replace(turned, status=_begun(turned.status, observed))
    if _says_complete(observed.worker_job):
        # Its pods are about to say how they ended, and nothing else ends it any more.
        return Life(status=status, stage=Stage.RUN)
    if observed.held and status.attempt_active_time is not None:
        return Life(status=_folded(status, now), stage=Stage.RUN)
    policy = run_policy(observed.job, template)
    end = deadlines.exceeded(observed, template, policy, now)
    if end is not None:
        return _ended(status, end, now)
    if observed.job.spec.suspend and (template is not None or not observed.was_started):
        return Life(status=_begun(_folded(status, now), observed), stage=Stage.SUSPENDED)
    if status.next_attempt_time is not None:
        return _wait(observed, template, status.next_attempt_time, settings, now)
    due = deadlines.due_s(observed, template, policy, now)
    return Life(
        status=status, stage=Stage.RUN, look_again_s=_earliest(due, _short_s(observed, template, settings, now))
    )


def is_suspended(status: JobStatus) -> bool:
    """Whether it is written down that the job stands still; from then on its pods may be stopped."""
    return is_true(status.conditions, JobCondition.SUSPENDED)


def run_policy(job: TorchrunJob, template: FrozenTemplate | None) -> EffectiveRunPolicy:
    """The job's policy as it is now, over the queue's as it was frozen."""
    frozen = RunPolicy.model_validate(template.queue_run_policy) if template else RunPolicy()
    return effective.run_policy(QueueSpec(run_policy=frozen), job.spec)


# An attempt that was started.


def _attempt(observed: Observed, template: FrozenTemplate | None, settings: Restarting, now: datetime) -> Life | None:
    if success.has_succeeded(observed):
        return _succeeded(observed, now)
    if observed.held:
        return None  # whoever suspended its Job stops its pods
    status, loss = observed.job.status, losses.first_loss(observed, template)
    if _has_left(observed) and (loss is None or loss.cause in _UNEXPLAINED):
        return _ended(status, _disappeared(observed), now)  # its pods go because it is gone
    if loss is None and _says_complete(observed.worker_job):
        return None  # it is not heard yet how its pods ended
    loss = loss or losses.replaced_host(observed, template) or _below_minimum(observed, template, settings, now)
    if loss is None:
        return None
    if loss.permanent is not None:
        return _ended(status, Outcome(loss.permanent, losses.sentence(loss.failure), loss.failure), now)
    incident = Incident(cause=loss.cause, opened=now.replace(microsecond=0), lost=loss.at)
    return Life(status=msgspec.structs.replace(status, incident=incident, failure=loss.failure), stage=Stage.SETTLE)


def _succeeded(observed: Observed, now: datetime) -> Life:
    job, status = observed.worker_job, msgspec.structs.replace(observed.job.status, failure=None)
    name = names.worker_job(observed.job.metadata.name, status.attempt)
    ended = job.status.completion_time if job is not None else None
    who = "worker 0" if observed.job.spec.elastic is not None else "every worker"
    return _ended(status, Outcome(JobReason.SUCCEEDED, f"{who} of Job {name} exited 0"), ended or now)


def _ended(status: JobStatus, outcome: Outcome, when: datetime) -> Life:
    """The end of a job; of the failures that it survived only the last one is kept, and only if it was the end."""
    when = when.replace(microsecond=0)
    known = msgspec.structs.replace(
        _folded(status, when), completion_time=when, failure=outcome.failure, incident=None, next_attempt_time=None
    )
    return Life(status=known, stage=Stage.RUN, outcome=outcome)


def _settle(
    observed: Observed, template: FrozenTemplate | None, incident: Incident, settings: Restarting, now: datetime
) -> Life:
    """Waits until the first of the lost pods is known, then counts the incident once and decides what follows."""
    status = observed.job.status
    if success.has_succeeded(observed):
        return _succeeded(observed, now)  # the report of it came after those of the others: nothing was lost
    if observed.held and incident.cause == Cause.DELETED:
        # Its pods were seen to go before it was seen that somebody had suspended its Job.
        return Life(status=msgspec.structs.replace(status, incident=None, failure=None), stage=Stage.RUN)
    left = _left_s(incident.opened + timedelta(seconds=settings.settle_s), settings.settle_s, now)
    if left > 0 and not _all_ended(observed, template):
        return Life(status=status, stage=Stage.SETTLE, look_again_s=left)
    cause, failure, lost = _first(observed, template, incident)
    if _has_left(observed) and cause in _UNEXPLAINED:
        return _ended(status, _disappeared(observed), now)  # its pods were only seen to go before it was
    restarts = budgets.counted(status, cause, settings, lost or incident.opened)
    refused = budgets.refused(run_policy(observed.job, template), settings, cause, failure, status.restarts)
    active = _folded(status, min(lost or incident.opened, incident.opened))
    counted = msgspec.structs.replace(active, incident=None, failure=failure, restarts=restarts)
    if refused is not None:
        end = Outcome(refused.reason, f"{losses.sentence(failure)}; {refused.why}{_logs(failure)}", failure)
        return _ended(counted, end, now)
    return Life(status=_next(counted, budgets.next_attempt_time(settings, restarts.consecutive, now)), stage=Stage.WAIT)


def _first(
    observed: Observed, template: FrozenTemplate | None, incident: Incident
) -> tuple[Cause, Failure, datetime | None]:
    """The earlier of what opened the incident and what is seen now; of one moment the one that is seen says more."""
    found = losses.first_loss(observed, template)
    opener = observed.job.status.failure or Failure()
    if found is not None and _says_more(found, incident, observed.job.status):
        return found.cause, found.failure, found.at
    cause = cause_named(incident.cause) or Cause.VANISHED
    if cause in _UNEXPLAINED and incident.lost and evicted_around(observed.podgroup, incident.lost):
        cause = Cause.PREEMPTED
    return cause, opener, incident.lost


def _says_more(found: Loss, incident: Incident, status: JobStatus) -> bool:
    """Whether the loss was earlier. One that lost a peer may have ended before that one did.

    An incident whose loss has no time came before what is said to have happened after it was opened.
    """
    if not found.failure.pod:
        return False
    if incident.cause == Cause.PEER_LOST:
        return True
    if found.cause is Cause.PEER_LOST and losses.is_explained(status):
        return False
    if incident.lost is not None:
        return found.at is not None and found.at <= incident.lost
    return found.at is None or found.at <= incident.opened or found.failure.pod == (status.failure or Failure()).pod


def _all_ended(observed: Observed, template: FrozenTemplate | None) -> bool:
    wanted = template.desired(observed.job.spec) if template else None
    return wanted is not None and len(observed.pods) >= wanted and all(map(pods.has_ended, observed.pods))


def _has_left(observed: Observed) -> bool:
    """Whether the Job was deleted before it was done."""
    job = observed.worker_job
    if job is None:
        return True
    return job.metadata.deletion_timestamp is not None and not _says_complete(job)


def _says_complete(job: Job | None) -> bool:
    return job is not None and is_true(job.status.conditions, "Complete")


def _disappeared(observed: Observed) -> Outcome:
    name = names.worker_job(observed.job.metadata.name, observed.job.status.attempt)
    message = f"Job {name} was deleted before it ended; a job is never run twice: submit it again"
    return Outcome(JobReason.JOB_DISAPPEARED, message, Failure(reason="Deleted", message=message))


def _logs(failure: Failure) -> str:
    return f"; see `kubectl logs {failure.pod}`" if failure.pod else ""


def _below_minimum(
    observed: Observed, template: FrozenTemplate | None, settings: Restarting, now: datetime
) -> Loss | None:
    left = _short_s(observed, template, settings, now)
    if left is None or left > 0 or template is None:
        return None
    ready, job = workers.standing(observed), names.worker_job(observed.job.metadata.name, observed.job.status.attempt)
    message = (
        f"Job {job} has {counted(ready, 'ready worker')}, elastic.minNodes is {template.min_nodes}: no replacement came"
    )
    return Loss(Cause.BELOW_MINIMUM, Failure(reason=Cause.BELOW_MINIMUM, message=message), now.replace(microsecond=0))


def _short_s(observed: Observed, template: FrozenTemplate | None, settings: Restarting, now: datetime) -> float | None:
    """Seconds until an elastic job that has run has been below its minimum for too long; None where it is not."""
    status = observed.job.status
    ready = find(status.conditions, JobCondition.WORKERS_READY)
    if template is None or template.elastic is None or status.attempt_ready_time is None or observed.held:
        return None
    if ready is None or ready.status == "True" or ready.last_transition_time is None:
        return None
    if workers.standing(observed) >= template.min_nodes:
        return None  # enough are back, and the condition does not say so yet
    job = observed.worker_job
    released = job.status.start_time if job is not None else None  # set anew each time
    since = max(ready.last_transition_time, released or ready.last_transition_time)
    due = since + timedelta(seconds=settings.below_minimum_s)
    return _left_s(due, settings.below_minimum_s, now)


# Between attempts.


def _next(status: JobStatus, due: datetime) -> JobStatus:
    """The attempt after this one, of which nothing exists yet."""
    return msgspec.structs.replace(
        status,
        attempt=status.attempt + 1,
        next_attempt_time=due,
        attempt_start_time=None,
        attempt_active_time=None,
        attempt_ready_time=None,
    )


def _wait(
    observed: Observed, template: FrozenTemplate | None, due: datetime, settings: Restarting, now: datetime
) -> Life:
    status, left = observed.job.status, _left_s(due, settings.max_backoff_s, now)
    if left > 0 or _is_going_on(observed, template):
        return Life(status=status, stage=Stage.WAIT, look_again_s=max(left, 0.0) or None)
    begun = msgspec.structs.replace(status, next_attempt_time=None)
    if observed.job.spec.queue_update_policy is QueueUpdatePolicy.NEXT_ATTEMPT:
        begun = msgspec.structs.replace(begun, queue_revision="")
    return Life(status=begun, stage=Stage.WAIT)


def _is_going_on(observed: Observed, template: FrozenTemplate | None) -> bool:
    """Whether pods of an earlier attempt run, or may come: an elastic Job replaces them until it is stopped."""
    if not all(map(pods.has_ended, observed.old_pods)):
        return True
    return template is not None and template.elastic is not None and any(map(_replaces, observed.old_jobs))


def _replaces(job: Job) -> bool:
    ended = any(is_true(job.status.conditions, type_) for type_ in ("Complete", "Failed"))
    return not (ended or job.spec.get("suspend") or job.metadata.deletion_timestamp is not None)


def _suspended(observed: Observed, template: FrozenTemplate | None, now: datetime) -> Life:
    status = observed.job.status
    if success.has_succeeded(observed):
        return _succeeded(observed, now)
    if observed.job.spec.suspend:
        return Life(status=status, stage=Stage.SUSPENDED)
    if observed.was_started:
        return Life(status=_next(status, now.replace(microsecond=0)), stage=Stage.WAIT)
    return Life(status=status, stage=Stage.RUN if status.next_attempt_time is None else Stage.WAIT)


def _begun(status: JobStatus, observed: Observed) -> JobStatus:
    """The status with the start of the attempt, of which nobody may have seen more than its end."""
    start = status.attempt_start_time
    if start is None and observed.worker_job is not None:
        start = observed.worker_job.metadata.creation_timestamp
    return msgspec.structs.replace(status, attempt_start_time=start, start_time=status.start_time or start)


def _folded(status: JobStatus, until: datetime) -> JobStatus:
    """The status with the time of the attempt added up, which is active no more."""
    active_s = deadlines.active_s(status, until)
    return msgspec.structs.replace(status, active_seconds=active_s, attempt_active_time=None)


def _left_s(due: datetime, longest_s: float, now: datetime) -> float:
    """Seconds left of a wait that was never longer than that: where the clock says so it was set back."""
    left = (due - now).total_seconds()
    return left if left <= longest_s + 1 else 0.0


def _earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)
