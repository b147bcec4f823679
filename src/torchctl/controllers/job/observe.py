"""Reads one job and everything that belongs to it from the cache, into one frozen value."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from torchctl.api import labels, names
from torchctl.api.conditions import JobCondition
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import (
    CONTROLLER_REVISION,
    JOB,
    POD,
    PVC,
    SERVICE,
    ControllerRevision,
    Job,
    PersistentVolumeClaim,
    Pod,
    Service,
)
from torchctl.api.kueue import KUEUE_WORKLOAD, KueueWorkload
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.api.volcano import VOLCANO_QUEUE, VolcanoPodGroup
from torchctl.controllers.gangs.groups import GROUP_KINDS, PodGroup, groups_of
from torchctl.controllers.gangs.volcano import DEFAULT_QUEUE
from torchctl.controllers.job import pods as podlib
from torchctl.controllers.job.observed import Observed, Started
from torchctl.controllers.job.upstream import is_awaited, upstream
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.conditions import find, is_true
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Key, Kind, Object, controller_of

__all__ = ["BY_JOB", "BY_WORKER_JOB", "OURS", "Observed", "by_job", "by_worker_job", "observe", "with_workers"]

ADMITTERS: tuple[Kind[Any], ...] = (*GROUP_KINDS, KUEUE_WORKLOAD)
"""The kinds by which it is known which gang schedulers there are."""

T = TypeVar("T", bound=Object)

_LONG_AGO = datetime.min.replace(tzinfo=UTC)

OURS = f"{labels.APP_MANAGED_BY}={names.FIELD_MANAGER}"
"""Label selector of the children: objects of others in the cluster are neither watched nor cached."""
BY_WORKER_JOB = "worker-job"
"""Index of Kueue's Workloads by the uid of their Job."""
BY_JOB = "torchrun-job"
"""Index of pods, Jobs, PodGroups and ControllerRevisions by namespace and uid of their TorchrunJob: a label of another
namespace's pod is nobody's word."""


def by_job(child: Object) -> Iterable[str]:
    """The index function of `BY_JOB`."""
    uid = child.metadata.labels.get(labels.JOB_UID)
    return (_of(child.metadata.namespace, uid),) if uid else ()


def by_worker_job(workload: KueueWorkload) -> tuple[str, ...]:
    """The index function of `BY_WORKER_JOB`."""
    owner = controller_of(workload)
    return (owner.uid,) if owner is not None and owner.kind == JOB.kind else ()


def _of(namespace: str, uid: str) -> str:
    return f"{namespace}/{uid}"


def observe(cache: Cache, key: Key) -> Observed | None:
    """Reads a job and its surroundings; returns None if there is no such job.

    The kinds read must be registered: pods, Jobs, ControllerRevisions and the PodGroups (optional) with the index
    `BY_JOB`, claims without a label selector, since a job may name a claim that is the user's.
    """
    job = cache.get(TORCHRUN_JOB, key)
    if job is None:
        return None
    uid, name = job.metadata.uid, job.metadata.name
    child = names.worker_job(name, job.status.attempt)
    belongs = _of(key.namespace, uid)
    own_groups = (_own(cache, kind, key, names.pod_group(child, uid), uid) for kind in GROUP_KINDS)
    podgroup = next(filter(None, own_groups), None)
    groups = chain.from_iterable(cache.by_index(kind, BY_JOB, belongs) for kind in GROUP_KINDS)
    jobs = tuple(cache.by_index(JOB, BY_JOB, belongs))
    old_jobs = _earlier(jobs, job)
    pods = cache.by_index(POD, BY_JOB, belongs)
    revisions = tuple(cache.by_index(CONTROLLER_REVISION, BY_JOB, belongs))
    revision = _own(cache, CONTROLLER_REVISION, key, job.status.queue_revision, uid)
    service = _own(cache, SERVICE, key, names.service(name), uid)
    worker_job = _own(cache, JOB, key, child, uid)
    workers = _workers(pods, job, worker_job, old_jobs)
    claimed = job.spec.volumes.workspace.claim_name if job.spec.volumes.workspace else None
    queue = cache.get(TORCHRUN_QUEUE, Key(key.namespace, job.spec.job_queue))
    return Observed(
        job=job,
        queue=queue,
        revision=revision,
        old_revisions=_older(revisions, revision, uid),
        workspace=_own(cache, PVC, key, names.workspace_claim(name), uid),
        claims={claimed: cache.get(PVC, Key(key.namespace, claimed))} if claimed else {},
        cache=cache.get(PVC, Key(key.namespace, _cache_name(queue, revision))),
        checkpoints=_kept(cache, key, uid),
        sync_pods=tuple(pod for pod in pods if _is_sync_pod(pod, job)),
        service=service,
        worker_job=worker_job,
        started=_started(job, jobs, service, revisions),
        pods=workers.there,
        withdrawn=workers.withdrawn,
        podgroup=podgroup,
        queue_state=_queue_state(cache, podgroup),
        groups=_groups(cache, key, workers.there),
        workloads=_workloads(cache, filter(None, (worker_job,))),
        old_workloads=_workloads(cache, old_jobs),
        old_jobs=old_jobs,
        old_pods=workers.earlier,
        old_groups=_earlier(groups, job),
        upstream=upstream(cache, job),
        awaited=is_awaited(cache, job),
        absent=frozenset(kind for kind in ADMITTERS if cache.informer(kind).absent),
        refused=_refused(cache),
    )


def with_workers(observed: Observed, pods: Iterable[Pod]) -> Observed:
    """Returns the observed state with the workers among these pods in place of those that the cache had."""
    found = _workers(pods, observed.job, observed.worker_job, observed.old_jobs)
    return replace(observed, pods=found.there, withdrawn=found.withdrawn, old_pods=found.earlier, workers_read=True)


class _Workers(NamedTuple):
    """The workers of a job, as `Observed` has them."""

    there: tuple[Pod, ...]
    withdrawn: tuple[Pod, ...]
    earlier: tuple[Pod, ...]


def _workers(pods: Iterable[Pod], job: TorchrunJob, worker_job: Job | None, old_jobs: Iterable[Job]) -> _Workers:
    found, jobs = tuple(pods), tuple(old_jobs)
    child = names.worker_job(job.metadata.name, job.status.attempt)
    every = tuple(pod for pod in found if _is_worker(pod, child, worker_job, job))
    withdrawn = tuple(pod for pod in every if _was_withdrawn(pod, worker_job, job))
    there = tuple(pod for pod in every if pod not in withdrawn)
    return _Workers(there, withdrawn, tuple(pod for pod in found if _is_old_worker(pod, job, jobs)))


def _cache_name(queue: TorchrunQueue | None, revision: ControllerRevision | None) -> str:
    """The name of the claim that keeps what was uploaded, as it was frozen; else as the queue says. It may be empty."""
    if revision is not None:
        frozen = revision.data.get("workspace")
        return str(frozen.get("cache", "")) if isinstance(frozen, dict) else ""
    workspace = queue.spec.storage.workspace if queue is not None else None
    return (workspace.cache_claim_name if workspace is not None else None) or ""


def _own(cache: Cache, kind: Kind[T], job: Key, name: str, uid: str) -> T | None:
    found = cache.get(kind, Key(job.namespace, name)) if name else None
    return found if found is not None and controlled_by(uid)(found.metadata) else None


def _refused(cache: Cache) -> dict[Kind[Any], str]:
    unknown = (informer for informer in map(cache.informer, ADMITTERS) if not informer.follows)
    return {informer.kind: informer.unavailable_reason for informer in unknown if not informer.absent}


def _groups(cache: Cache, job: Key, workers: Iterable[Pod]) -> dict[str, PodGroup]:
    """Returns the PodGroups that the workers are in, by name, as far as the cache has them.

    Of the groups that KAI's podgrouper makes, the cache has those for our Job, because they have its labels.
    """
    named = groups_of(workers)
    found = (cache.get(kind, Key(job.namespace, name)) for kind in GROUP_KINDS for name in named)
    return {group.metadata.name: group for group in found if group is not None}


def _queue_state(cache: Cache, group: PodGroup | None) -> str | None:
    """The state of the Volcano Queue that a PodGroup is in, empty if it does not exist; None if nobody can know."""
    if not isinstance(group, VolcanoPodGroup) or not cache.informer(VOLCANO_QUEUE).available:
        return None
    queue = cache.get(VOLCANO_QUEUE, Key("", str(group.spec.get("queue") or DEFAULT_QUEUE)))
    if queue is None:
        return ""
    return (queue.status.state if queue.status is not None else "") or None


def _workloads(cache: Cache, jobs: Iterable[Job]) -> tuple[KueueWorkload, ...]:
    """The Workloads that Kueue goes by now: one that a larger one has replaced is Finished."""
    every = chain.from_iterable(cache.by_index(KUEUE_WORKLOAD, BY_WORKER_JOB, job.metadata.uid) for job in jobs)
    going = [one for one in every if not is_true(one.status.conditions, "Finished")]
    return tuple(sorted(going, key=lambda one: (one.metadata.creation_timestamp or _LONG_AGO, one.metadata.name)))


def _kept(cache: Cache, job: Key, uid: str) -> PersistentVolumeClaim | None:
    """The checkpoints claim: the job's own, or one that an earlier job of this name left without an owner."""
    found = cache.get(PVC, Key(job.namespace, names.checkpoints_claim(job.name)))
    if found is None or controlled_by(uid)(found.metadata):
        return found
    left = controller_of(found) is None and found.metadata.labels.get(labels.JOB_NAME) == job.name
    return found if left else None


def _is_sync_pod(pod: Pod, job: TorchrunJob) -> bool:
    return pod.metadata.labels.get(labels.ROLE) == labels.ROLE_SYNC and controlled_by(job.metadata.uid)(pod.metadata)


def _is_worker(pod: Pod, child: str, worker_job: Job | None, job: TorchrunJob) -> bool:
    """Whether a pod is a worker of the attempt, which its Job owns.

    If the Job is gone, the pod has to name it as its owner. Labels alone do not count, because anyone can write them.
    """
    owner = controller_of(pod)
    if owner is None or owner.kind != JOB.kind or pod.metadata.labels.get(labels.ROLE) != labels.ROLE_WORKER:
        return False
    if worker_job is not None:
        return owner.uid == worker_job.metadata.uid
    return owner.name == child and pod.metadata.labels.get(labels.ATTEMPT) == str(job.status.attempt)


def _was_withdrawn(pod: Pod, worker_job: Job | None, job: TorchrunJob) -> bool:
    """Whether the controller of its Job stopped the pod because somebody else than this job suspended the Job.

    It may still be there when the Job is released again.
    """
    if (
        worker_job is None
        or pod.metadata.deletion_timestamp is None
        or podlib.is_tracked(pod)
        or (podlib.has_finished(pod) and podlib.index(pod) in worker_job.status.completed)
        or is_true(job.status.conditions, JobCondition.SUSPENDED)
    ):
        return False
    if worker_job.spec.get("suspend") or is_true(worker_job.status.conditions, "Suspended"):
        return True
    released = find(worker_job.status.conditions, "Suspended")
    # The kubelet's last delete is without grace and hides when the pod was told: then it counts when it was made.
    moment = podlib.told_at(pod) if pod.metadata.deletion_grace_period_seconds else pod.metadata.creation_timestamp
    if released is None or released.last_transition_time is None or moment is None:
        return False
    return moment <= released.last_transition_time


def _earlier(children: Iterable[T], job: TorchrunJob) -> tuple[T, ...]:
    """Returns our own children that belong to an earlier attempt."""
    is_ours = controlled_by(job.metadata.uid)
    ours = (child for child in children if is_ours(child.metadata))
    return tuple(child for child in ours if labels.attempt_of(child.metadata.labels) < job.status.attempt)


def _older(
    every: Iterable[ControllerRevision], named: ControllerRevision | None, uid: str
) -> tuple[ControllerRevision, ...]:
    """Returns our own templates that are older than the named one; a later one may be in force if status is late."""
    if named is None:
        return ()
    is_ours = controlled_by(uid)
    ours = (revision for revision in every if is_ours(revision.metadata))
    return tuple(revision for revision in ours if revision.revision < named.revision)


def _started(
    job: TorchrunJob, jobs: Iterable[Job], service: Service | None, revisions: Iterable[ControllerRevision]
) -> Started | None:
    """Reads which attempt was started last from the Service, which is turned to an attempt before its Job is made.

    It stays when that Job goes. If it is gone itself, or names no attempt any more, the Jobs tell; workers do not,
    because anyone may make one.
    """
    is_ours, name = controlled_by(job.metadata.uid), job.metadata.name
    ours = ((labels.attempt_of(one.metadata.labels), one) for one in jobs if is_ours(one.metadata))
    named = {attempt: one for attempt, one in ours if one.metadata.name == names.worker_job(name, attempt)}
    if service is not None and labels.ATTEMPT in service.selector:
        latest: int | None = labels.attempt_of(service.selector)
    else:
        latest = max(named, default=None if service is None else 0)
    if latest is None:
        return None
    child: Job | Service | None = named.get(latest, service)
    assert child is not None
    newest = max((one for one in revisions if is_ours(one.metadata)), key=_age, default=None)
    return Started(
        attempt=latest,
        child=f"{JOB.kind if latest in named else SERVICE.kind} {child.metadata.name}",
        made=latest in named,
        since=child.metadata.creation_timestamp,
        template=newest.metadata.name if newest is not None else "",
    )


def _age(revision: ControllerRevision) -> tuple[int, datetime]:
    return revision.revision, revision.metadata.creation_timestamp or _LONG_AGO


def _is_old_worker(pod: Pod, job: TorchrunJob, jobs: Iterable[Job]) -> bool:
    """Whether a pod is a worker of an earlier attempt's Job.

    If that Job is gone, the pod has to name it as its owner, by the name that the Job must have had.
    """
    owner, attempt = controller_of(pod), labels.attempt_of(pod.metadata.labels)
    if owner is None or owner.kind != JOB.kind or pod.metadata.labels.get(labels.ROLE) != labels.ROLE_WORKER:
        return False
    alive = next((one.metadata.uid for one in jobs if one.metadata.name == owner.name), owner.uid)
    known = owner.name == names.worker_job(job.metadata.name, attempt) and owner.uid == alive
    return known and attempt < job.status.attempt
