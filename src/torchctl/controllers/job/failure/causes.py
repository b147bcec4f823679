"""Why a pod was lost, read from the pod itself."""

from torchctl.api.causes import Cause
from torchctl.api.kube import KaiPodGroup, Pod
from torchctl.api.names import INIT_CONTAINER, PREFLIGHT_CONTAINER, TRAINER
from torchctl.controllers.job import pods
from torchctl.controllers.job.failure.evictions import preempted
from torchctl.controllers.job.failure.rootcause import root_cause
from torchctl.runtime.conditions import find

__all__ = ["by_container", "cause_of"]

_DISRUPTIONS = {
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
    "EvictionByEvictionAPI": Cause.EVICTED,
    "TerminationByKubelet": Cause.EVICTED,
}
"""Reasons of a pod's condition DisruptionTarget (k8s.io/api core/v1, PodReason*)."""
_REASONS = {
    "Evicted": Cause.EVICTED,
    "Preempting": Cause.PREEMPTED,
    "NodeLost": Cause.NODE_LOST,
    "NodeShutdown": Cause.NODE_LOST,
    "Terminated": Cause.NODE_LOST,
    "Shutdown": Cause.NODE_LOST,
    "NodeAffinity": Cause.REJECTED,
    "UnexpectedAdmissionError": Cause.REJECTED,
    "TopologyAffinityError": Cause.REJECTED,
}
"""status.reason of a pod that the kubelet ended, or did not take. It says more than DisruptionTarget beside it."""
_INIT = {INIT_CONTAINER: Cause.WORKSPACE_LOST, PREFLIGHT_CONTAINER: Cause.RENDEZVOUS_UNREACHABLE}
_OUT_OF = "OutOf"
"""Begins the kubelet's reason for a pod that does not fit: OutOfcpu, OutOfnvidia.com/gpu."""


def cause_of(pod: Pod, group: KaiPodGroup | None) -> Cause:
    """The cause of an incident that this pod opened: one that failed, or was told to stop.

    Args:
        group: KAI's PodGroup of the attempt.
    """
    if preempted(pod, group):
        return Cause.PREEMPTED
    reason = pod.status.reason
    if reason in _REASONS:
        return _REASONS[reason]
    target = find(pod.status.conditions, "DisruptionTarget")
    if target is not None and target.status == "True" and target.reason in _DISRUPTIONS:
        return _DISRUPTIONS[target.reason]
    if reason.startswith(_OUT_OF):
        return Cause.REJECTED
    if pods.told_to_stop(pod):
        return Cause.DELETED
    return by_container(pod)


def by_container(pod: Pod) -> Cause:
    """What the pod's own containers say, whoever told it to stop meanwhile."""
    fatal = pods.fatal(pod)
    if fatal is None:
        return Cause.VANISHED
    if fatal[1].reason == Cause.OOM_KILLED:
        return Cause.OOM_KILLED
    if fatal[0] == TRAINER and root_cause(fatal[1].message).follows:
        return Cause.PEER_LOST
    return _INIT.get(fatal[0], Cause.ERROR)
