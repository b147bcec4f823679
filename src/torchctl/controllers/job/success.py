"""Decides whether an attempt has succeeded, from its trainers' exits and its Job's memory of pods that are gone.

A worker is done when its trainer exited 0 without having been told to stop. How its pod ends is another matter: a
sidecar may run on for ever, or fail. An elastic job has succeeded with its worker 0, another one with all its workers.
"""

from datetime import UTC, datetime

from torchctl.api.conditions import JobCondition
from torchctl.api.job import TorchrunJob
from torchctl.api.kube import Job, Pod
from torchctl.controllers.job import pods
from torchctl.controllers.job.observed import Observed
from torchctl.runtime.conditions import find

__all__ = ["done", "has_succeeded", "lingers"]


def has_succeeded(observed: Observed) -> bool:
    """Whether all workers that decide are done."""
    if observed.job.spec.elastic is not None:
        return 0 in done(observed)
    job = observed.worker_job
    return job is not None and done(observed) >= set(range(int(job.spec.get("completions") or 1)))


def done(observed: Observed) -> frozenset[int]:
    """Returns the indexes of the workers that are done. If the pod of a worker is gone, its Job decides.

    The Job controller also counts a trainer that exits 0 while it is being evicted. So its word counts for nothing
    while a pod of that index is seen that has not ended yet, or that exited 0 because it was told to.
    """
    seen = {pods.index(pod) for pod in observed.pods if pods.is_done(pod)}
    doubted = {pods.index(pod) for pod in (*observed.pods, *observed.withdrawn) if _is_doubtful(pod)}
    return frozenset(index for index in (*seen, *(_counted(observed) - doubted)) if index is not None)


def lingers(observed: Observed) -> bool:
    """Whether the Job of an attempt that has succeeded goes on: a worker that decides keeps it, or is made again.

    A plain container keeps the worker's pod from ending. Or it fails the pod: an elastic Job then makes another one.
    Native sidecars do neither, Kubernetes ends them.
    """
    elastic = observed.job.spec.elastic is not None
    deciding = [pod for pod in observed.pods if not elastic or pods.index(pod) == 0]
    return any(pods.outlives_trainer(pod) or _trains(pod) or (elastic and _fails_done(pod)) for pod in deciding)


def _trains(pod: Pod) -> bool:
    return not (pods.has_finished(pod) or pods.has_ended(pod) or pods.told_to_stop(pod))


def _fails_done(pod: Pod) -> bool:
    return pods.is_done(pod) and pod.status.phase == "Failed"


def _is_doubtful(pod: Pod) -> bool:
    return not pods.has_ended(pod) or (pods.has_finished(pod) and not pods.is_done(pod))


def _counted(observed: Observed) -> frozenset[int]:
    """The indexes that the Job controller counted as completed before anybody was told to stop.

    After that, an index may be one whose trainer saved and exited 0 because it was told to stop.
    """
    job = observed.worker_job
    if job is None or observed.job.status.incident is not None:
        return frozenset()
    told, completed = _told_to_stop(observed.job, job), job.status.completion_time
    genuine = told is None or (completed is not None and completed < told)
    return job.status.completed if genuine else frozenset()


def _told_to_stop(job: TorchrunJob, child: Job) -> datetime | None:
    """Returns when the pods of a Job were told to stop, at the earliest; None if its controller told none."""
    suspended = find(child.status.conditions, "Suspended")
    if child.spec.get("activeDeadlineSeconds"):
        suspended = find(job.status.conditions, JobCondition.SUSPENDED)
    elif not child.spec.get("suspend") or suspended is None or suspended.status != "True":
        return None
    since = suspended.last_transition_time if suspended is not None else None
    return since or datetime.min.replace(tzinfo=UTC)
