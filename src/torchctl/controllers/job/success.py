"""Whether an attempt has succeeded: what its workers' trainers say, and what its Job remembers of pods that are gone.

A worker is done when its trainer exited 0 without having been told to stop. How its pod ends is another matter: a
sidecar may run on for ever, or fail. An elastic job has succeeded with its worker 0, another one with all its workers.
"""

from torchctl.api.conditions import JobCondition
from torchctl.api.kube import Pod
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
    """The indexes of the workers that are done. Of a worker whose pod is gone the Job's word is taken.

    The Job controller also counts a trainer that exits 0 while it is being evicted. So its word counts for nothing
    while a pod of that index is seen that has not ended yet, or that exited 0 because it was told to.
    """
    seen = {pods.index(pod) for pod in observed.pods if pods.is_done(pod)}
    doubted = {pods.index(pod) for pod in observed.pods if _is_doubtful(pod)}
    return frozenset(index for index in (*seen, *(_counted(observed) - doubted)) if index is not None)


def lingers(observed: Observed) -> bool:
    """Whether the Job of an attempt that has succeeded does not end by itself, because of other containers.

    They keep a pod from ending. Or they fail it: an elastic Job then makes another worker 0, and trains again.
    """
    if observed.job.spec.elastic is None:
        return any(pods.is_done(pod) and not pods.has_ended(pod) for pod in observed.pods)
    job = observed.worker_job
    counted = job is not None and 0 in job.status.completed
    return not counted and not any(pods.index(pod) == 0 and pods.succeeded(pod) for pod in observed.pods)


def _is_doubtful(pod: Pod) -> bool:
    return not pods.has_ended(pod) or (pods.has_finished(pod) and not pods.is_done(pod))


def _counted(observed: Observed) -> frozenset[int]:
    """The indexes that the Job controller counted as completed before anybody was told to stop.

    After that, an index may be one whose trainer saved and exited 0 because it was told to stop.
    """
    job, status = observed.worker_job, observed.job.status
    if job is None or status.incident is not None:
        return frozenset()
    if job.spec.get("suspend"):
        suspended, completed = find(status.conditions, JobCondition.SUSPENDED), job.status.completion_time
        since = suspended.last_transition_time if suspended is not None else None
        if completed is None or since is None or completed >= since:
            return frozenset()
    return job.status.completed
