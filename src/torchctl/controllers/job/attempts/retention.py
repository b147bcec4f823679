"""What is left of attempts and jobs that have ended: what is stopped, what goes, and what stays to be read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from torchctl.api import labels
from torchctl.api.common import PodRetention
from torchctl.api.job import TORCHRUN_JOB, Failure
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, Job, Pod
from torchctl.api.phases import Phase
from torchctl.controllers.job import pods
from torchctl.controllers.job.actions import Child, Halt, Removal
from torchctl.controllers.job.attempts import stuck
from torchctl.controllers.job.attempts.lifecycle import run_policy
from torchctl.controllers.job.children import workers
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import tries
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.settings import Restarting
from torchctl.runtime.conditions import is_true
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Kind, key_of

__all__ = ["Estate", "after_the_end", "halted", "has_ended", "leftovers", "look_again_s", "stop", "stopped"]


@dataclass(frozen=True, slots=True)
class Estate:
    """What happens to the children of a job that has ended, and when to look again."""

    children: tuple[Child, ...] = ()
    remove: tuple[Removal, ...] = ()
    halt: tuple[Halt, ...] = ()
    look_again_s: float | None = None


def after_the_end(observed: Observed, template: FrozenTemplate | None, now: datetime) -> Estate:
    """The outcome stands in status. What would run on is stopped; how much of the rest goes, podRetention says.

    After ttlSecondsAfterFinished the job itself goes, and with it all that it owns: not the checkpoints it retains.
    It stays for a job that waits for it: how it ended is nowhere else to be seen.
    """
    job, policy = observed.job, run_policy(observed.job, template)
    left = None if observed.awaited else _ttl_left_s(observed, policy.ttl_seconds_after_finished, now)
    if left is not None and left <= 0:
        return Estate(remove=(replace(_removal(TORCHRUN_JOB, job), version=job.metadata.resource_version),))
    syncs = [pod for pod in observed.sync_pods if not pods.has_ended(pod) and not _is_leaving(pod)]
    remove = [_removal(POD, pod) for pod in syncs if not tries.runs_on(pod)]
    halts = tries.halt(syncs, now, recorded=True)
    current = observed.worker_job
    keeps = current is None or policy.pod_retention is PodRetention.ALL
    kept = [old.metadata.uid for old in _kept(observed, template)] if keeps else []
    remove += [_removal(JOB, old) for old in observed.old_jobs if old.metadata.uid not in kept and not _is_leaving(old)]
    remove += [_removal(KAI_PODGROUP, group) for group in observed.old_groups if not _is_leaving(group)]
    remove += _old_templates(observed)
    if current is not None and policy.pod_retention is PodRetention.NONE:
        remove += [] if _is_leaving(current) else [_removal(JOB, current)]
        return Estate(remove=tuple(remove), halt=halts, look_again_s=left)
    stops = stopped(observed, template) if keeps and template is not None else ()
    if current is None or job.status.phase != Phase.FAILED:
        return Estate(stops, tuple(remove), halts, left)
    if _would_go_on(observed) and template is not None:
        stops = (*stops, stop(observed, template, current))
    elif _would_go_on(observed):  # nobody can say any more how to suspend it
        remove += [] if _is_leaving(current) else [_removal(JOB, current)]
    halts += () if job.spec.elastic is not None else _halted(observed.pods, job.status.failure, now)
    return Estate(stops, tuple(remove), halts, left)


def leftovers(observed: Observed, template: FrozenTemplate, settings: Restarting, now: datetime) -> tuple[Removal, ...]:
    """What has to go of earlier attempts while the job goes on: Jobs that nobody will read, and stuck pods by force.

    Their templates go once the one that status names is there: what a Job was made of stands in the Job.

    Deleting a Job stops its pods too, each with its grace period. PodGroups go once no pod is in them any more. A Job
    that has not ended goes where a pod of it is stuck: its controller lets no pod go that never came to an end. Of the
    attempt that an elastic job goes on with, a stuck pod goes once its Job lets it (see `stuck`). No Job keeps a sync
    pod; the next one waits until it is gone.
    """
    late = [
        pod
        for pod in (*observed.old_pods, *observed.sync_pods)
        if (left := _stuck_in_s(pod, template, settings, now)) is not None and left <= 0
    ]
    held = {pod.metadata.labels.get(labels.ATTEMPT) for pod in late}
    readable = (job for job in _kept(observed, template) if has_ended(job) or str(attempt_of(job)) not in held)
    kept = [job.metadata.uid for job in readable]
    gone = [_removal(JOB, job) for job in observed.old_jobs if job.metadata.uid not in kept and not _is_leaving(job)]
    late += [pod for pod in stuck.workers(observed, template, settings, now) if not stuck.is_held(pod)]
    forced = [Removal(POD, key_of(pod), pod.metadata.uid, force=True) for pod in late if not pods.was_forced(pod)]
    over = all(map(pods.has_ended, observed.old_pods))
    groups = [_removal(KAI_PODGROUP, group) for group in observed.old_groups if over and not _is_leaving(group)]
    return (*gone, *forced, *groups, *_old_templates(observed))


def stopped(observed: Observed, template: FrozenTemplate) -> tuple[Child, ...]:
    """The Jobs of earlier attempts that are kept and would go on, suspended."""
    return tuple(
        stop(observed, template, job)
        for job in _kept(observed, template)
        if not has_ended(job) and not job.spec.get("suspend") and (template.elastic or not _failed_pods(observed, job))
    )


def halted(observed: Observed, template: FrozenTemplate, now: datetime) -> tuple[Halt, ...]:
    """Pods of Jobs that are kept whose trainer failed and whose other containers would go on, for ever.

    The one to be read is ended, so that its Job has failed and the Job controller deletes the rest. Pods of an elastic
    Job are not: it would replace them.
    """
    if template.elastic:
        return ()
    jobs = _kept(observed, template)
    return tuple(halt for job in jobs for halt in _halted(_pods_of(observed, job), observed.job.status.failure, now))


def stop(observed: Observed, template: FrozenTemplate, job: Job, *, lets_go: bool = False) -> Child:
    """A Job without its pods: each is told to stop and has its grace period; those that have ended stay."""
    owner = Owner.of(observed.job)
    nodes = int(job.spec.get("completions") or template.nodes)
    body = workers.worker_job(owner, template, attempt_of(job), nodes=nodes, suspend=True, lets_go=lets_go)
    return Child(JOB, body, controlled_by(owner.uid))


def has_ended(job: Job) -> bool:
    """Whether the Job controller has ended the Job, or is about to."""
    ends = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
    return any(is_true(job.status.conditions, type_) for type_ in ends)


def look_again_s(observed: Observed, template: FrozenTemplate, settings: Restarting, now: datetime) -> float | None:
    """Seconds until a pod of an earlier attempt, or a sync pod, counts as stuck; None where none is about to go."""
    waits = (_stuck_in_s(pod, template, settings, now) for pod in (*observed.old_pods, *observed.sync_pods))
    return min((max(left, 1.0) for left in waits if left is not None and left > 0), default=None)


def attempt_of(job: Job) -> int:
    text = job.metadata.labels.get(labels.ATTEMPT, "")
    return int(text) if text.isdecimal() else 0


def _would_go_on(observed: Observed) -> bool:
    """Whether the Job of an attempt that failed does not end by itself: no pod of it counts as failed."""
    job = observed.worker_job
    if job is None or has_ended(job):
        return False
    return observed.job.spec.elastic is not None or not any(map(_is_readable, observed.pods))


def _kept(observed: Observed, template: FrozenTemplate | None) -> Iterator[Job]:
    """The Jobs of earlier attempts that stay to be read: by default of the last one, where pods of it failed."""
    retention = run_policy(observed.job, template).pod_retention
    if retention is PodRetention.ALL:
        yield from observed.old_jobs
    elif retention is PodRetention.FAILED:
        last = [job for job in observed.old_jobs if attempt_of(job) == observed.job.status.attempt - 1]
        yield from (job for job in last if _failed_pods(observed, job))


def _failed_pods(observed: Observed, job: Job) -> list[Pod]:
    return [pod for pod in _pods_of(observed, job) if _is_readable(pod)]


def _pods_of(observed: Observed, job: Job) -> list[Pod]:
    attempt = str(attempt_of(job))
    return [pod for pod in observed.old_pods if pod.metadata.labels.get(labels.ATTEMPT) == attempt]


def _is_readable(pod: Pod) -> bool:
    """Whether a pod failed, or is about to have: its trainer did. One that is deleted before that leaves nothing."""
    return pod.status.phase == "Failed" or (pods.failed(pod) and not _is_leaving(pod))


def _halted(every: Sequence[Pod], failure: Failure | None, now: datetime) -> tuple[Halt, ...]:
    """Of the pods of an attempt that go on the one that failed first; where one has failed, its Job ends the others."""
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


def _stuck_in_s(pod: Pod, template: FrozenTemplate, settings: Restarting, now: datetime) -> float | None:
    until = pod.metadata.deletion_timestamp or _over_at(pod, template)
    if until is None or pods.has_ended(pod):
        return None
    return (until + timedelta(seconds=settings.stuck_pod_s) - now).total_seconds()


def _over_at(pod: Pod, template: FrozenTemplate) -> datetime | None:
    """When a pod that has a deadline must have ended, its grace period included."""
    start, deadline_s = pod.status.start_time, pod.spec.active_deadline_seconds
    if start is None or deadline_s is None:
        return None
    return start + timedelta(seconds=deadline_s + int(template.pod["spec"].get("terminationGracePeriodSeconds", 30)))


def _ttl_left_s(observed: Observed, ttl_s: int | None, now: datetime) -> float | None:
    ended = observed.job.status.completion_time
    if ttl_s is None or ended is None:
        return None
    return (ended + timedelta(seconds=ttl_s) - now).total_seconds()


def _old_templates(observed: Observed) -> list[Removal]:
    return [_removal(CONTROLLER_REVISION, old) for old in observed.old_revisions if not _is_leaving(old)]


def _removal(kind: Kind[Any], obj: Any) -> Removal:
    return Removal(kind, key_of(obj), obj.metadata.uid)


def _is_leaving(obj: Any) -> bool:
    return obj.metadata.deletion_timestamp is not None
