"""Volcano: a PodGroup of our own for each attempt, in a Volcano Queue.

It has no minResources: in a full cluster Volcano would not let such a PodGroup in, so that it could preempt nobody.
Volcano says on the pod itself that it was preempted (condition DisruptionTarget), and says nothing on the PodGroup.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from torchctl.api import labels, names
from torchctl.api.conditions import JobReason
from torchctl.api.kube import Pod
from torchctl.api.volcano import VOLCANO_PODGROUP, VolcanoCondition, VolcanoPodGroup
from torchctl.controllers.gangs.groups import PodGroup
from torchctl.controllers.gangs.scheduler import Gang, Marks, Needs, Said
from torchctl.runtime.kinds import Kind

__all__ = ["DEFAULT_QUEUE", "FrozenVolcano"]

DEFAULT_QUEUE = "default"
"""The Queue that Volcano makes itself, and puts pods in that name none."""

_INDEX = "batch.kubernetes.io/job-completion-index"
_HOST = {
    "name": "host",
    "subGroupSize": 1,
    "minSubGroups": 1,
    "labelSelector": {"matchLabels": {_INDEX: "0"}},
    "matchLabelKeys": [_INDEX],
}
"""Keeps worker 0 among the fewest that start: Volcano takes any, and the others meet at worker 0."""
_WAITING = ("Pending", "Inqueue", "Unknown")
"""Phases of a PodGroup that lacks pods: not let in, let in and not placed, placed once and short of pods."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class FrozenVolcano(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The Volcano Queue that the pods are in, and whether they start together or not at all."""

    queue: str = ""
    gang: bool

    @property
    def name(self) -> str:
        return names.VOLCANO

    @property
    def kind(self) -> Kind[VolcanoPodGroup]:
        return VOLCANO_PODGROUP

    @property
    def needs(self) -> Needs:
        what = "the cluster has no podgroups.scheduling.volcano.sh: install Volcano, this job goes on by itself then"
        return Needs(VOLCANO_PODGROUP, JobReason.VOLCANO_NOT_INSTALLED, what)

    @property
    def own_group(self) -> bool:
        """Always: without a PodGroup of ours Volcano makes one in its default Queue. No gang is a minimum of 1."""
        return True

    @property
    def admits_jobs(self) -> bool:
        return False

    @property
    def place(self) -> str:
        return f"Volcano's Queue {self.queue or DEFAULT_QUEUE}"

    @property
    def remedy(self) -> str:
        return f"see who changes the PodGroup, or the annotation {labels.VOLCANO_POD_GROUP} of the pods"

    def spec(self, gang: Gang) -> dict[str, Any]:
        least = gang.least if self.gang else 1
        spec: dict[str, Any] = {"minMember": least}
        if self.queue:
            # If left out, it is Volcano's to set: its webhook takes the Queue that the namespace names.
            spec["queue"] = self.queue
        if gang.priority_class:
            # Volcano orders gangs by this one alone, and not by the pods' own.
            spec["priorityClassName"] = gang.priority_class
        if self.gang and least < gang.most:
            spec["subGroupPolicy"] = [_HOST]
        return spec

    def marks(self, gang: Gang) -> Marks:
        return Marks(pod_annotations={labels.VOLCANO_POD_GROUP: gang.group})

    def group_of(self, pod: Pod) -> str:
        return pod.metadata.annotations.get(labels.VOLCANO_POD_GROUP, "")

    def has_member(self, pod: Pod) -> bool:
        return True

    def has_seen(self, group: PodGroup) -> bool:
        return True

    def said(self, group: PodGroup, queue_state: str | None) -> Said:
        """Why Volcano places none of the PodGroup's pods: its Queue first, which no condition tells of."""
        queue = group.spec.get("queue") or DEFAULT_QUEUE
        if queue_state == "":
            steps = ("create it, or name another in the TorchrunQueue's spec.scheduling.volcanoQueue",)
            return Said(f"its Queue {queue} does not exist", steps)
        if queue_state in ("Closing", "Closed"):
            return Said(f"its Queue {queue} is {queue_state} and takes in no more pods", ("open it",))
        status = group.status if isinstance(group, VolcanoPodGroup) else None
        if status is None or status.phase not in _WAITING:
            return Said()
        youngest = max(status.conditions or (), key=_since, default=VolcanoCondition())
        return Said(youngest.message or youngest.reason) if youngest.type == "Unschedulable" else Said()


def _since(condition: VolcanoCondition) -> tuple[datetime, bool]:
    """The order of conditions by age; of one second, the one that says why the PodGroup waits is the younger."""
    return condition.last_transition_time or _LONG_AGO, condition.type == "Unschedulable"
