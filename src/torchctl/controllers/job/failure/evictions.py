"""Tells a scheduler's eviction of a pod from a deletion by a person.

kube-scheduler records it in the pod's condition DisruptionTarget. KAI-Scheduler records it there only with
`--update-pod-eviction-condition`; by default its eviction is a plain DELETE, for which it notes the time of the last
one in an annotation of the PodGroup (0.17 and later). So the two times are compared. The annotation is written a
moment after the pods are told to stop, so an early answer may be no, and has to be asked for again. Pure.
"""

from datetime import UTC, datetime, timedelta

from torchctl.api.kube import KaiPodGroup, Pod
from torchctl.controllers.job.pods import told_at
from torchctl.runtime.conditions import find

__all__ = ["LAST_EVICTION", "evicted_around", "last_eviction", "preempted"]

LAST_EVICTION = "kai.scheduler/last-eviction-timestamp"
"""Annotation of a PodGroup: when KAI last evicted a pod of it to make room, RFC 3339, whole seconds."""

_PREEMPTED = "PreemptionByScheduler"
_SLACK = timedelta(seconds=15)
"""The largest difference between KAI's and the API server's clocks; a deletion within it counts as KAI's."""


def preempted(pod: Pod, group: KaiPodGroup | None) -> bool:
    """Whether a scheduler told this pod to stop, to make room for others.

    Args:
        group: The PodGroup that the pod is in, None if it is in none.
    """
    disrupted = find(pod.status.conditions, "DisruptionTarget")
    if disrupted is not None and disrupted.status == "True":
        return disrupted.reason == _PREEMPTED
    told = told_at(pod)
    return told is not None and evicted_around(group, told)


def evicted_around(group: KaiPodGroup | None, moment: datetime) -> bool:
    """Whether KAI evicted a pod of the group at about that time: for pods that are gone before anybody saw them go."""
    last = last_eviction(group)
    return last is not None and abs(last - moment) <= _SLACK


def last_eviction(group: KaiPodGroup | None) -> datetime | None:
    """The time at which KAI last evicted a pod of the group; None if it did not, or does not say so."""
    text = group.metadata.annotations.get(LAST_EVICTION, "") if group is not None else ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
