"""The life of a job: attempts and what ends them, suspension, deadlines.

What has to be remembered of it stands in status: the number of the attempt, the incident that is open, the restarts
that were used, since when the workers are ready. `advance` says what should stand there now. If that differs from
what does, the pass writes it (guarded by resourceVersion) and does nothing else; the next one acts on it. So a
crash between any two calls is followed by the same decision or by its consequence, and never by a second one.

    Run -> Settle (an incident is open) -> Wait (back-off, and the pods of earlier attempts) -> Run ...
     \\-> Suspended -> Wait or Run ...                         every one of them -> Ended

The stage follows from status (`stage_of`), and each stage has one handler here.
"""

from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from torchctl.api import names
from torchctl.api.causes import Cause
from torchctl.api.conditions import JobReason
from torchctl.api.job import Failure, JobStatus, QueueUpdatePolicy
from torchctl.api.jobstatus import Incident
from torchctl.api.kube import Job
from torchctl.controllers.job import pods, success
from torchctl.controllers.job.actions import earliest
from torchctl.controllers.job.attempts import deadlines, elastic
from torchctl.controllers.job.attempts.outcome import Outcome, log_hint, sentence
from torchctl.controllers.job.attempts.recovery import is_recovered
from torchctl.controllers.job.attempts.stage import Ended, Life, Run, Settle, Suspended, Wait, stage_of
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.children.workers import is_stopped
from torchctl.controllers.job.failure import budgets, verdict
from torchctl.controllers.job.failure.verdict import Loss
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import admission
from torchctl.runtime.conditions import is_true

__all__ = ["advance"]

_UNEXPLAINED = (Cause.DELETED, Cause.VANISHED)


def advance(case: Case, hopeless: Outcome | None) -> Life:
    """Decides the next stage of an unfinished job.

    Args:
        hopeless: The end of a job whose workers have not started; workers that run go on.
    """
    match stage_of(case.status):
        case Settle(incident):
            return _settle(case, incident)
        case Suspended():
            return _suspended(case)
        case Wait(due):
            return _wait(case, due, hopeless)
        case Run():
            return _run(case, hopeless)


# The attempt is prepared, started, or runs.


def _run(case: Case, hopeless: Outcome | None) -> Life:
    if not case.observed.was_started:
        if hopeless is not None:
            return _ended(case.status, hopeless, case.now)
        if admission.is_taken_back(case.status):
            return _waits_again(case)
        return _held_up(case) if _is_going_on(case) else _go_on(case)
    if _is_over(case) and not success.has_succeeded(case.observed):
        return _forgotten(case)
    turned = _lost_or_done(case)
    if turned is not None:
        return replace(turned, status=_begun(turned.status, case.observed))
    begins_anew = _cannot_begin_again(case)
    if _says_complete(case.observed.worker_job) and not begins_anew:
        # Its pods are about to say how they ended, and nothing else ends it any more.
        return Life(status=case.status, stage=Run())
    if admission.is_taken_back(case.status):
        return _waits_again(case)
    if begins_anew:
        return Life(status=_next(_folded(case.status, case.now), case.moment), stage=Wait(case.moment))
    if case.observed.held and (case.status.attempt_active_time is not None or case.status.host_uid):
        # The suspension of its Job stops worker 0 too, so the next one is not its replacement.
        known = _folded(case.status, case.now)
        again = msgspec.structs.replace(known, host_uid="", requeues=known.requeues + 1)
        return Life(status=again, stage=Run())
    return _go_on(case)


def _cannot_begin_again(case: Case) -> bool:
    """Whether somebody else has suspended a Job that makes no pod again of a worker that the gang needs.

    It makes none of an index that is complete. One that is complete as a whole makes no pod at all, though its
    trainers may have exited 0 only because they were told to stop.
    """
    observed, job = case.observed, case.observed.worker_job
    if _says_complete(job):
        is_over = all(map(pods.has_ended, (*observed.pods, *observed.withdrawn)))
        return job is not None and bool(job.spec.get("suspend")) and is_over
    if job is None or not observed.held:
        return False
    return 0 in job.status.completed if case.is_elastic else bool(job.status.completed)


def _go_on(case: Case) -> Life:
    """Lets an attempt go on that is neither lost nor done, unless a deadline passes or somebody suspends the job."""
    halted = _out_of_time(case) or _suspends(case)
    if halted is not None:
        return halted
    moments = (deadlines.due_s(case), elastic.look_again_s(case), verdict.look_again_s(case))
    return Life(status=case.status, stage=Run(), look_again_s=earliest(*moments))


def _lost_or_done(case: Case) -> Life | None:
    status, observed = case.status, case.observed
    if success.has_succeeded(observed):
        return _succeeded(case)
    loss = verdict.first_loss(case)
    if _has_left(observed) and (loss is None or loss.cause in _UNEXPLAINED):
        return _ended(status, _disappeared(observed), case.now)  # its pods go because it is gone
    if loss is None and _says_complete(observed.worker_job):
        return None  # it is not known yet how its pods ended
    loss = loss or elastic.replaced_host(case) or elastic.below_minimum(case)
    return _opened(case, loss) if loss is not None else None


def _is_over(case: Case) -> bool:
    """Whether the attempt is over and nothing says any more what was made of that.

    This operator has ended it and status does not say so: its Job is stopped, or kept out of Kueue. Or its Job has
    failed, and the pod that would say why is gone. A Workload is inactive, and a pod is gone, for other reasons too.
    Status says which, if it was not lost.
    """
    observed = case.observed
    if is_stopped(observed.worker_job):
        return True
    if not is_recovered(case.status):
        return False
    loss = verdict.first_loss(case)
    untold = loss is not None and loss.cause is Cause.VANISHED and not loss.failure.pod
    return untold or (observed.paused and not observed.withdrawn and not observed.job.spec.suspend)


def _forgotten(case: Case) -> Life:
    """The end of a job whose attempt this operator has ended, without a word of it in status: that was lost.

    Suspension ends a Job as well, and the next attempt waits for its end. Else it was the end of the job, or hardly
    ever of an attempt alone.
    """
    if case.observed.job.spec.suspend:
        return _waits_again(case)
    name = names.worker_job(case.observed.job.metadata.name, case.status.attempt)
    why = "it was lost, or somebody else has ended the Job"
    message = f"Job {name} was ended, and status does not say why: {why}; a job is never run twice: submit it again"
    failure = Failure(reason=JobReason.STATUS_LOST, message=message)
    return _ended(case.status, Outcome(JobReason.STATUS_LOST, message, failure), case.now)


def _held_up(case: Case) -> Life:
    """Waits once more for an earlier attempt, which somebody else has let run: by its Job, or in status."""
    status = msgspec.structs.replace(case.status, next_attempt_time=case.moment)
    return Life(status=status, stage=Wait(case.moment))


def _waits_again(case: Case) -> Life:
    """Gives up an attempt that lost its room before it trained: no incident, and its time does not count."""
    begun = _begun(case.status, case.observed)
    return Life(status=_next(begun, case.moment), stage=Wait(case.moment))


def _opened(case: Case, loss: Loss) -> Life:
    """The incident that a loss opens, or the end that it is."""
    if loss.permanent is not None:
        return _ended(case.status, _hopeless(loss, loss.permanent), case.now)
    incident = loss.opened(case.moment)
    status = msgspec.structs.replace(case.status, incident=incident, failure=loss.failure)
    return Life(status=status, stage=Settle(incident))


def _hopeless(loss: Loss, reason: JobReason) -> Outcome:
    return Outcome(reason, sentence(loss.failure), loss.failure)


# An incident is open.


def _settle(case: Case, incident: Incident) -> Life:
    """Waits until the first of the lost pods is known, then counts the incident once and decides what follows."""
    status, observed = case.status, case.observed
    if success.has_succeeded(observed):
        return _succeeded(case)  # the report of it came after those of the others: nothing was lost
    loss = verdict.confirmed(case, incident)
    hinges = verdict.hinges_on_its_job(loss, case)
    settle_s = case.settings.settle_s * (2 if hinges else 1)
    left = _left_s(incident.opened + timedelta(seconds=settle_s), settle_s, case.now)
    if left > 0 and not (_all_ended(case) and loss.cause is not Cause.DELETED and not hinges):
        # A pod that tells more may be gone in a moment. The Job may still tell who deleted a pod.
        known = loss.opened(incident.opened)
        status = msgspec.structs.replace(status, incident=known, failure=loss.failure)
        return Life(status=status, stage=Settle(known), look_again_s=left)
    if loss.permanent is not None:
        return _ended(status, _hopeless(loss, loss.permanent), case.now)
    if _has_left(observed) and loss.cause in _UNEXPLAINED:
        return _ended(status, _disappeared(observed), case.now)  # its pods were only seen to go before it was
    return _counted(case, loss, incident.opened)


def _counted(case: Case, loss: Loss, opened: datetime) -> Life:
    lost, failure = min(loss.at or opened, opened), loss.failure
    cause, restarts = budgets.counted(case.status, loss.cause, case.settings, lost)
    refused = budgets.refused(case.policy, case.settings, cause, failure, restarts)
    active = _folded(case.status, lost)
    status = msgspec.structs.replace(active, incident=None, failure=failure, restarts=restarts)
    if refused is not None:
        message = f"{sentence(failure)}; {refused.why}{log_hint(case.observed.pods, failure)}"
        return _ended(status, Outcome(refused.reason, message, failure), case.now)
    due = budgets.next_attempt_time(case.settings, restarts.consecutive, case.now)
    return Life(status=_next(status, due), stage=Wait(due))


def _all_ended(case: Case) -> bool:
    if case.template is None:
        return False
    there = case.observed.pods
    return len(there) >= case.template.desired(case.observed.job.spec) and all(map(pods.has_ended, there))


# The next attempt waits.


def _wait(case: Case, due: datetime, hopeless: Outcome | None) -> Life:
    if hopeless is not None:
        return _ended(case.status, hopeless, case.now)
    halted = _out_of_time(case) or _suspends(case)
    if halted is not None:
        return halted
    status = case.status
    left = _left_s(due, case.settings.max_backoff_s, case.now)
    if left > 0 or _is_going_on(case):
        return Life(status=status, stage=Wait(due), look_again_s=max(left, 0.0) or None)
    begun = msgspec.structs.replace(status, next_attempt_time=None)
    if case.observed.job.spec.queue_update_policy is QueueUpdatePolicy.NEXT_ATTEMPT:
        begun = msgspec.structs.replace(begun, queue_revision="")
    return Life(status=begun, stage=Wait(due))


def _is_going_on(case: Case) -> bool:
    """Whether pods of an earlier attempt run, or may come: an elastic Job replaces them until it is stopped."""
    if not all(map(pods.has_ended, case.observed.old_pods)):
        return True
    return case.is_elastic and any(map(_replaces, case.observed.old_jobs))


def _replaces(job: Job) -> bool:
    done = any(is_true(job.status.conditions, type_) for type_ in ("Complete", "Failed"))
    stopped = job.spec.get("suspend") or job.spec.get("activeDeadlineSeconds") is not None
    return not (done or stopped or job.metadata.deletion_timestamp is not None)


# It stands still.


def _suspended(case: Case) -> Life:
    status, observed = case.status, case.observed
    if success.has_succeeded(observed):
        return _succeeded(case)
    if observed.job.spec.suspend:
        return Life(status=status, stage=Suspended())
    if case.pausable and observed.stands_still and not all(map(pods.has_ended, observed.pods)):
        return Life(status=status, stage=Suspended())  # those of the next run would meet at a store of this one
    if case.pausable:
        return Life(status=status, stage=Run())  # Kueue starts the same Job, which keeps what it knows of it
    if observed.was_started or admission.granted(status) is not None:
        return _waits_again(case)  # the room that it was let in for may be another job's by now
    return Life(status=status, stage=Run() if status.next_attempt_time is None else Wait(status.next_attempt_time))


# What several stages lead to.


def _out_of_time(case: Case) -> Life | None:
    end = deadlines.exceeded(case)
    return _ended(case.status, end, case.now) if end is not None else None


def _suspends(case: Case) -> Life | None:
    """Suspends the job if its spec asks for it, but not a job that runs without a template: it could not resume."""
    if not case.observed.job.spec.suspend or (case.template is None and case.observed.was_started):
        return None
    status = _begun(_folded(case.status, case.now), case.observed)
    if case.pausable and (case.status.attempt_active_time is not None or case.status.host_uid):
        status = msgspec.structs.replace(status, host_uid="", requeues=status.requeues + 1)
    return Life(status=status, stage=Suspended())


def _succeeded(case: Case) -> Life:
    """The end of a job whose attempt has succeeded."""
    job, name = case.observed.worker_job, names.worker_job(case.observed.job.metadata.name, case.status.attempt)
    who = "worker 0" if case.is_elastic else "every worker"
    done = job.status.completion_time if job is not None else None
    status = msgspec.structs.replace(case.status, failure=None)
    return _ended(status, Outcome(JobReason.SUCCEEDED, f"{who} of Job {name} exited 0"), done or case.now)


def _ended(status: JobStatus, outcome: Outcome, when: datetime) -> Life:
    """The end of a job; of the failures that it survived only the last one is kept, and only if it was the end."""
    when = when.replace(microsecond=0)
    known = msgspec.structs.replace(
        _folded(status, when), completion_time=when, failure=outcome.failure, incident=None, next_attempt_time=None
    )
    return Life(status=known, stage=Ended(outcome))


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


def _next(status: JobStatus, due: datetime) -> JobStatus:
    """The attempt after this one, of which nothing exists yet."""
    return msgspec.structs.replace(
        status,
        attempt=status.attempt + 1,
        next_attempt_time=due,
        attempt_start_time=None,
        attempt_active_time=None,
        attempt_ready_time=None,
        requeues=0,
        host_uid="",
    )


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
    """Returns seconds left of a wait of at most `longest_s`; 0 if more seem left, because a clock was set back."""
    left = (due - now).total_seconds()
    return left if left <= longest_s + 1 else 0.0
