"""Whether an attempt has succeeded: what its Job says, and what its pods say before their Job does."""

from torchctl.controllers.job import pods
from torchctl.controllers.job.observed import Observed
from torchctl.runtime.conditions import is_true

__all__ = ["has_decided", "has_succeeded", "is_complete"]


def is_complete(observed: Observed) -> bool:
    """Whether the attempt has ended well: its Job says so, and no pod of it is known to have been told to stop before.

    The Job controller also counts a trainer that exits 0 while it is being evicted. So a pod whose end is not seen yet
    is waited for: whether it was told to stop is not seen yet either. Of an elastic job worker 0 decides, with whose
    end the others are stopped.
    """
    job = observed.worker_job
    if job is None or not is_true(job.status.conditions, "Complete"):
        return False
    counted = observed.pods
    if observed.job.spec.elastic is not None:
        counted = tuple(pod for pod in counted if pods.index(pod) == 0)
    return all(pods.has_ended(pod) and not pods.told_to_stop(pod) for pod in counted)


def has_succeeded(observed: Observed) -> bool:
    """Whether the workers that decide are seen to have succeeded untold, though their Job may not say so yet."""
    job = observed.worker_job
    if observed.job.spec.elastic is not None:
        return has_decided(observed)
    done = {pods.index(pod) for pod in observed.pods if pods.succeeded(pod) and not pods.told_to_stop(pod)}
    return job is not None and done >= set(range(int(job.spec.get("completions") or 1)))


def has_decided(observed: Observed) -> bool:
    """Whether worker 0 of an elastic job is seen to have succeeded, which decides."""
    firsts = (pod for pod in observed.pods if pods.index(pod) == 0)
    return any(pods.succeeded(pod) and not pods.told_to_stop(pod) for pod in firsts)
