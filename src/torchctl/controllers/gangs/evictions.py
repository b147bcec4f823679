"""Tells a scheduler's eviction of a pod from a deletion by a person.

kube-scheduler and Volcano record it in the pod's condition DisruptionTarget. KAI-Scheduler records it there only with
`--update-pod-eviction-condition`; by default its eviction is a plain DELETE, for which it notes the time of the last
one in an annotation of the PodGroup (0.17 and later). So the two times are compared. The annotation is written a
moment after the pods are told to stop, so an early answer may be no, and has to be asked for again. Pure.
"""

from datetime import UTC, datetime, timedelta

from torchctl.controllers.gangs.groups import PodGroup

__all__ = ["LAST_EVICTION", "evicted_around", "last_eviction"]

LAST_EVICTION = "kai.scheduler/last-eviction-timestamp"
"""Annotation of a PodGroup: when KAI last evicted a pod of it to make room, RFC 3339, whole seconds."""

_SLACK = timedelta(seconds=15)
"""The largest difference between KAI's and the API server's clocks; a deletion within it counts as KAI's."""


def evicted_around(group: PodGroup | None, moment: datetime) -> bool:
    """Whether KAI evicted a pod of the group at about that time."""
    last = last_eviction(group)
    return last is not None and abs(last - moment) <= _SLACK


def last_eviction(group: PodGroup | None) -> datetime | None:
    """The time at which KAI last evicted a pod of the group; None if it did not, or does not say so."""
    text = group.metadata.annotations.get(LAST_EVICTION, "") if group is not None else ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
