"""Decides which children of ended attempts and jobs are stopped, which are deleted, and which stay readable."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from torchctl.api import labels
from torchctl.api.common import PodRetention
from torchctl.api.job import TORCHRUN_JOB, Failure
from torchctl.api.kube import CONTROLLER_REVISION, JOB, POD, Job, Pod
from torchctl.api.kueue import KueueWorkload
from torchctl.api.labels import KUEUE_PAUSED
from torchctl.api.phases import Phase
from torchctl.controllers.gangs.groups import holds_queue, kind_of
from torchctl.controllers.job import pods, success
from torchctl.controllers.job.actions import Actions, Child, Halt, Pause, Removal
from torchctl.controllers.job.attempts.stage import is_suspended
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.children import workers
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import tries
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Kind, controller_of, key_of

__all__ = ["after_the_end", "drops_last", "halted", "leftovers", "look_again_s", "pauses", "stop", "stopped"]


def after_the_end(case: Case) -> Actions:
    """Stops, deletes or keeps the children of a job whose outcome is in status.

    A child that would run on is stopped; podRetention decides how many of the others are deleted. After
    ttlSecondsAfterFinished the job itself is deleted, and with it all that it owns, but not the checkpoints it retains.
    It stays while another job waits for it, because its outcome is recorded nowhere else.
    """
    observed, job, policy = case.observed, case.observed.job, case.policy
    left = None if observed.awaited else _ttl_left_s(case, policy.ttl_seconds_after_finished)
    if left is not None and left <= 0:
        return Actions(remove=(replace(_removal(TORCHRUN_JOB, job), version=job.metadata.resource_version),))
    syncs = [pod for pod in observed.sync_pods if not pods.has_ended(pod) and not _is_leaving(pod)]
    remove = [_removal(POD, pod) for pod in syncs if not tries.runs_on(pod)]
    halts = tries.halt(syncs, case.now, recorded=True)
    current = observed.worker_job
    keeps = current is None or policy.pod_retention is PodRetention.ALL
    kept = [*_kept(case)] if keeps else []
    uids = [old.metadata.uid for old in kept]
    remove += [_removal(JOB, old) for old in observed.old_jobs if old.metadata.uid not in uids and not _is_leaving(old)]
    remove += [_removal(kind_of(group), group) for group in observed.old_groups if not _is_leaving(group)]
    remove += [*_released(observed), *_old_templates(observed)]
    if current is not None and policy.pod_retention is PodRetention.NONE:
        remove += [] if _is_leaving(current) else [_removal(JOB, current)]
        return Actions(remove=tuple(remove), halt=halts, look_again_s=left)
    stops = stopped(case) if keeps else ()
    if current is not None and _would_go_on(observed):
        stops = (*stops, *stop(case, current))
        if case.template is None and not _is_leaving(current):
            remove.append(_removal(JOB, current))  # nobody knows any more what it was made of
    read = job.status.phase == Phase.FAILED and not case.is_elastic
    halts += _halted(observed.pods, job.status.failure, case.now) if read and current is not None else ()
    pause = _dequeued(observed, (*kept, *filter(None, (current,))))
    return Actions(remove=tuple(remove), halt=halts, pause=pause, children=stops, look_again_s=left)


def _released(observed: Observed) -> list[Removal]:
    """The PodGroup of the attempt, which is over, if others wait for it to go, once no pod is in it any more."""
    group = observed.podgroup
    if group is None or not holds_queue(group) or _is_leaving(group) or not all(map(pods.has_ended, observed.pods)):
        return []
    return [_removal(kind_of(group), group)]


def leftovers(case: Case) -> tuple[Removal, ...]:
    """Returns what to delete of earlier attempts while the job goes on: unread Jobs, and stuck pods by force.

    Their templates go once the one that status names is there, because a Job records itself what it was made of.

    Deleting a Job stops its pods too, each with its grace period. PodGroups go once no pod is in them any more. A Job
    that has not ended goes if a pod of it is stuck: its controller lets no pod go that never came to an end. No Job
    keeps a sync pod; the next one waits until it is gone.
    """
    observed = case.observed
    late = [pod for pod in _nobody_else_ends(case) if (left := _stuck_in_s(pod, case)) is not None and left <= 0]
    held = {pod.metadata.labels.get(labels.ATTEMPT) for pod in late}
    readable = (
        job for job in _kept(case) if job.status.ends() or str(labels.attempt_of(job.metadata.labels)) not in held
    )
    kept = [job.metadata.uid for job in readable]
    gone = [_removal(JOB, job) for job in observed.old_jobs if job.metadata.uid not in kept and not _is_leaving(job)]
    forced = [Removal(POD, key_of(pod), pod.metadata.uid, force=True) for pod in late if not pods.was_forced(pod)]
    over = all(map(pods.has_ended, observed.old_pods))
    groups = [_removal(kind_of(group), group) for group in observed.old_groups if over and not _is_leaving(group)]
    released = _released(observed) if is_suspended(case.status) else []
    return (*gone, *forced, *groups, *released, *_old_templates(observed))


def drops_last(case: Case, remove: Iterable[Removal]) -> bool:
    """Whether the Job of the last attempt is among what is removed because no pod of it seems to have failed."""
    if case.policy.pod_retention is not PodRetention.FAILED:
        return False
    gone = {removal.uid for removal in remove}
    return any(job.metadata.uid in gone and not _failed_pods(case.observed, job) for job in _last(case))


def stopped(case: Case) -> tuple[Child, ...]:
    """The Jobs of earlier attempts that are kept and would go on, ended."""
    kept = [job for job in _kept(case) if case.is_elastic or not _failed_pods(case.observed, job)]
    return tuple(child for job in kept for child in stop(case, job))


def halted(case: Case) -> tuple[Halt, ...]:
    """Halts pods of kept Jobs whose trainer failed and whose other containers would run for ever.

    Only the pod that is kept for reading is halted: its Job then fails, and the Job controller deletes the rest. The
    pods of an elastic Job are not halted, because it would replace them.
    """
    if case.is_elastic:
        return ()
    every = (_pods_of(case.observed, job) for job in _kept(case))
    return tuple(halt for there in every for halt in _halted(there, case.status.failure, case.now))


def stop(case: Case, job: Job) -> tuple[Child, ...]:
    """Returns the Job in a form that stops its pods, each with its grace period; pods that have ended stay.

    Nothing if it has ended. Nothing if somebody has suspended it: it has no pods, and it is ended when it is released.
    Nothing without a template, because nobody knows any more what the Job was made of.
    """
    if case.template is None or job.status.ends() or job.spec.get("suspend"):
        return ()
    owner, attempt = Owner.of(case.observed.job), labels.attempt_of(job.metadata.labels)
    nodes = int(job.spec.get("completions") or case.template.nodes)
    body = workers.worker_job(owner, case.template, attempt, nodes=nodes, made=job, stop=True)
    return (Child(JOB, body, controlled_by(owner.uid)),)


def pauses(case: Case, suspended: bool) -> tuple[Pause, ...]:
    """Returns which of Kueue's Workloads to pause, and which to resume.

    The attempt's is paused while the job is suspended, or pods of its last run go: Kueue gives quota anew as soon as
    these are told to stop, and new pods would meet at the last run's store. A back-off of Kueue's own is waited for,
    since a pause would end it. A Workload that somebody else has made inactive stays so.
    """
    observed, over = case.observed, _dequeued(case.observed, _kept(case))
    if case.pausable and (suspended or (observed.withdrawn and not _backs_off(observed.workloads[0], case.now))):
        return (*over, *(_pause(one, True) for one in observed.workloads if one.spec.active))
    return (*over, *(_pause(one, False) for one in observed.workloads if KUEUE_PAUSED in one.metadata.annotations))


def _dequeued(observed: Observed, over: Iterable[Job]) -> tuple[Pause, ...]:
    """Pauses the Workloads of held Jobs whose attempts are over, for good.

    Kueue would give them quota when their turn comes, and nothing else ends a Job that is suspended. A Job that it has
    let go is ended, and its Workload with it: a pause would only suspend it again.
    """
    held = [job.metadata.uid for job in over if job.spec.get("suspend") and not _is_leaving(job)]
    every = (*observed.workloads, *observed.old_workloads)
    return tuple(_pause(one, True) for one in every if one.spec.active and _job_of(one) in held)


def _job_of(workload: KueueWorkload) -> str:
    owner = controller_of(workload)
    return owner.uid if owner is not None else ""


def _backs_off(workload: KueueWorkload, now: datetime) -> bool:
    state = workload.status.requeue_state
    return state is not None and state.requeue_at is not None and state.requeue_at > now


def _pause(workload: KueueWorkload, paused: bool) -> Pause:
    return Pause(key_of(workload), workload.metadata.uid, workload.metadata.resource_version, paused)


def look_again_s(case: Case) -> float | None:
    """Seconds until a pod counts as stuck; None if none is about to go."""
    waits = (_stuck_in_s(pod, case) for pod in _nobody_else_ends(case))
    return min((max(left, 1.0) for left in waits if left is not None and left > 0), default=None)


def _would_go_on(observed: Observed) -> bool:
    """Whether the Job does not end by itself.

    A failed job's Job goes on if no pod of it counts as failed; a succeeded job's goes on if a pod of it lingers.
    """
    job = observed.worker_job
    if job is None or job.status.ends():
        return False
    if observed.job.status.phase == Phase.SUCCEEDED:
        return success.lingers(observed)
    return observed.job.spec.elastic is not None or not any(map(_is_readable, observed.pods))


def _kept(case: Case) -> Iterator[Job]:
    """The Jobs of earlier attempts that stay to be read: by default of the last one, if pods of it failed."""
    retention, observed = case.policy.pod_retention, case.observed
    if retention is PodRetention.ALL:
        yield from observed.old_jobs
    elif retention is PodRetention.FAILED:
        yield from (job for job in _last(case) if _failed_pods(observed, job))


def _last(case: Case) -> list[Job]:
    """The Job of the last attempt, if it is there."""
    return [job for job in case.observed.old_jobs if labels.attempt_of(job.metadata.labels) == case.status.attempt - 1]


def _failed_pods(observed: Observed, job: Job) -> list[Pod]:
    return [pod for pod in _pods_of(observed, job) if _is_readable(pod)]


def _pods_of(observed: Observed, job: Job) -> list[Pod]:
    attempt = str(labels.attempt_of(job.metadata.labels))
    return [pod for pod in observed.old_pods if pod.metadata.labels.get(labels.ATTEMPT) == attempt]


def _is_readable(pod: Pod) -> bool:
    """Whether a pod failed, or is about to have: its trainer did. One that is deleted before that leaves nothing."""
    return pod.status.phase == "Failed" or (pods.failed(pod) and not _is_leaving(pod))


def _halted(every: Sequence[Pod], failure: Failure | None, now: datetime) -> tuple[Halt, ...]:
    """Halts the pods of an attempt that run on, or only the one that failed first if it is among them.

    If a pod has failed, its Job ends the others.
    """
    if any(pod.status.phase == "Failed" for pod in every):
        return ()
    going_on = [pod for pod in every if pods.runs_on(pod) and not _is_leaving(pod)]
    first = [pod for pod in going_on if failure is not None and pod.metadata.name == failure.pod]
    return tuple(
        Halt(key_of(pod), pod.metadata.uid, max(1, _age_s(pod, now)))
        for pod in first or going_on
        if pod.spec.active_deadline_seconds is None
    )


def _age_s(pod: Pod, now: datetime) -> int:
    return int((now - (pod.status.start_time or now)).total_seconds())


def _nobody_else_ends(case: Case) -> tuple[Pod, ...]:
    """Pods that hold the job up if their node does not answer.

    The attempt of a job of a fixed size does not outlive a pod that was told to stop; an elastic one goes on without.
    """
    observed = case.observed
    goes = case.is_elastic or (case.pausable and observed.stands_still)
    return (*observed.old_pods, *observed.withdrawn, *observed.sync_pods, *(observed.pods if goes else ()))


def _stuck_in_s(pod: Pod, case: Case) -> float | None:
    until = pod.metadata.deletion_timestamp or _over_at(pod, case)
    if until is None or pods.has_ended(pod):
        return None
    return (until + timedelta(seconds=case.settings.stuck_pod_s) - case.now).total_seconds()


def _over_at(pod: Pod, case: Case) -> datetime | None:
    """Returns the time by which a pod with a deadline must have ended, its grace period included."""
    start, deadline_s = pod.status.start_time, pod.spec.active_deadline_seconds
    if start is None or deadline_s is None or case.template is None:
        return None
    grace_s = int(case.template.pod["spec"].get("terminationGracePeriodSeconds", 30))
    return start + timedelta(seconds=deadline_s + grace_s)


def _ttl_left_s(case: Case, ttl_s: int | None) -> float | None:
    ended = case.status.completion_time
    if ttl_s is None or ended is None:
        return None
    return (ended + timedelta(seconds=ttl_s) - case.now).total_seconds()


def _old_templates(observed: Observed) -> list[Removal]:
    return [_removal(CONTROLLER_REVISION, old) for old in observed.old_revisions if not _is_leaving(old)]


def _removal(kind: Kind[Any], obj: Any) -> Removal:
    return Removal(kind, key_of(obj), obj.metadata.uid)


def _is_leaving(obj: Any) -> bool:
    return obj.metadata.deletion_timestamp is not None
