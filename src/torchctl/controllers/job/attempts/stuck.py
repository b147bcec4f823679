"""Pods that were told to stop and never say that they did: their node is gone, or does not answer.

With podReplacementPolicy Failed the Job controller waits for such a pod for ever: it makes no other in its place, and
its finalizer keeps the pod from being deleted, by force too (pkg/controller/job, isPodFailed and canRemoveFinalizer).
With TerminatingOrFailed it counts the pod as failed at once. So a pod of an attempt that goes on leaves in two steps:
its Job is told to let it go, and then it is deleted by force.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from torchctl.api.kube import Pod
from torchctl.controllers.job import pods
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.settings import Restarting

__all__ = ["is_held", "look_again_s", "workers"]

_FINALIZER = "batch.kubernetes.io/job-tracking"


def workers(observed: Observed, template: FrozenTemplate, settings: Restarting, now: datetime) -> tuple[Pod, ...]:
    """The stuck workers of an elastic job's attempt.

    The Job of a fixed size fails with the first pod that counts as failed; its attempt does not outlive such a pod.
    """
    return tuple(pod for pod, due in _leaving(observed, template, settings) if due <= now)


def look_again_s(observed: Observed, template: FrozenTemplate, settings: Restarting, now: datetime) -> float | None:
    """Seconds until the next worker counts as stuck; None where none is about to. What becomes of those is an event."""
    waits = ((due - now).total_seconds() for _, due in _leaving(observed, template, settings))
    return min((max(left, 1.0) for left in waits if left > 0), default=None)


def is_held(pod: Pod) -> bool:
    """Whether the pod's Job would keep it from going."""
    return _FINALIZER in pod.metadata.finalizers


def _leaving(observed: Observed, template: FrozenTemplate, settings: Restarting) -> Iterator[tuple[Pod, datetime]]:
    """Workers that were told to stop, each with the time from which it counts as stuck."""
    for pod in observed.pods if template.elastic else ():
        until = pod.metadata.deletion_timestamp
        if until is not None and not pods.has_ended(pod):
            yield pod, until + timedelta(seconds=settings.stuck_pod_s)
