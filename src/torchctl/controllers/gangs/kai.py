"""KAI-Scheduler: a PodGroup of our own for each attempt, in a KAI Queue.

A PodGroup of our own is what makes an Indexed Job a gang in KAI: the one that KAI's podgrouper would make has
minMember 1, and whether it reads the Job's annotation depends on which owners it may see.
"""

from typing import Any

import msgspec

from torchctl.api import labels, names
from torchctl.api.conditions import JobReason
from torchctl.api.kube import KAI_PODGROUP, KaiPodGroup, Pod
from torchctl.controllers.gangs.groups import PodGroup
from torchctl.controllers.gangs.scheduler import Gang, Marks, Needs, Said
from torchctl.runtime.kinds import Kind

__all__ = ["FrozenKai", "FrozenTopology"]

_STEPS = {
    "NonPreemptibleOverQuota": "raise the quota of the KAI Queue, or take a priority class below 100",
    "OverLimit": "raise the limit of the KAI Queue, or wait for its other jobs",
    "QueueDoesNotExist": "create the KAI Queue and those that are its parents",
}
"""Next steps for a person, by KAI's UnschedulableReason; for other reasons: wait, or bring more nodes."""


class FrozenTopology(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A KAI Topology, and the levels of it that all pods must or should share."""

    name: str
    required: str = ""
    preferred: str = ""


class FrozenKai(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The KAI queue that the pods are in, and whether they start together or not at all."""

    queue: str = ""
    gang: bool
    topology: FrozenTopology | None = None

    @property
    def name(self) -> str:
        return names.KAI_SCHEDULER

    @property
    def kind(self) -> Kind[KaiPodGroup]:
        return KAI_PODGROUP

    @property
    def needs(self) -> Needs:
        what = "the cluster has no podgroups.scheduling.run.ai: install KAI-Scheduler, this job goes on by itself then"
        return Needs(KAI_PODGROUP, JobReason.KAI_NOT_INSTALLED, what)

    @property
    def own_group(self) -> bool:
        """Whether the job has a PodGroup of its own, which needs a queue."""
        return self.gang and bool(self.queue)

    @property
    def admits_jobs(self) -> bool:
        return False

    @property
    def place(self) -> str:
        return f"KAI queue {self.queue}" if self.queue else "KAI's default queue"

    @property
    def remedy(self) -> str:
        return "let KAI's podgrouper heed kai.scheduler/skip-podgrouper (KAI-Scheduler 0.15 and later do)"

    def spec(self, gang: Gang) -> dict[str, Any]:
        spec: dict[str, Any] = {"minMember": gang.least, "queue": self.queue}
        if gang.priority_class:
            spec["priorityClassName"] = gang.priority_class
        if self.topology is not None:
            spec["topologyConstraint"] = _constraint(self.topology)
        return spec

    def marks(self, gang: Gang) -> Marks:
        """Labels that put Job and pods into their KAI queue, and annotations that put the pods into their PodGroup.

        The Job's annotation is the gang's size for a KAI before 0.15, which makes the PodGroup itself; later ones
        ignore it.
        """
        grouped = {labels.KAI_POD_GROUP: gang.group, labels.KAI_SKIP_PODGROUPER: "true"} if self.own_group else {}
        return Marks(
            labels={labels.KAI_QUEUE: self.queue} if self.queue else {},
            job_annotations={labels.KAI_BATCH_MIN_MEMBER: str(gang.least)} if self.gang else {},
            pod_annotations=grouped,
        )

    def group_of(self, pod: Pod) -> str:
        return pod.metadata.annotations.get(labels.KAI_POD_GROUP, "")

    def has_member(self, pod: Pod) -> bool:
        return True

    def has_seen(self, group: PodGroup) -> bool:
        return True

    def said(self, group: PodGroup, queue_state: str | None) -> Said:
        """KAI's reasons with the next steps. The order of the reasons is no information, so it is dropped."""
        status = group.status if isinstance(group, KaiPodGroup) else None
        given = [one for one in (status.scheduling_conditions or () if status else ()) if one.status == "True"]
        reasons = [reason for one in given for reason in one.reasons or ()]
        words = {reason.message or reason.reason for reason in reasons}
        words |= {one.message or one.reason for one in given if not one.reasons}
        if not any(words):
            return Said()
        steps = {step for reason in reasons if (step := _STEPS.get(reason.reason))}
        if not reasons and self.topology is not None:
            steps.add(f"see whether KAI's Topology {self.topology.name} has the levels that the job asks for")
        return Said("; ".join(sorted(words)), tuple(sorted(steps)))


def _constraint(topology: FrozenTopology) -> dict[str, str]:
    levels = {"requiredTopologyLevel": topology.required, "preferredTopologyLevel": topology.preferred}
    return {"topology": topology.name} | {field: level for field, level in levels.items() if level}
