"""The interfaces of gang schedulers: what each needs of a Job, and what those with PodGroups need and say of these."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from torchctl.api.conditions import JobReason
from torchctl.api.kube import Pod
from torchctl.controllers.gangs.groups import PodGroup
from torchctl.runtime.kinds import Kind

__all__ = ["Gang", "GangScheduler", "Marks", "Needs", "PodGroupScheduler", "Said"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """An attempt's pods, as a gang scheduler is told of them.

    Args:
        group: The name of their PodGroup, which no other attempt and no other job ever has.
        least: The number of pods that start together or not at all.
        most: The number of pods that there can be; more than `least` if the job is elastic.
        priority_class: The PriorityClass of the pods; empty if they name none.
    """

    group: str
    least: int
    most: int
    priority_class: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """A kind that the cluster has to serve for a gang scheduler, and what the condition says if it does not."""

    kind: Kind[Any]
    reason: JobReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What an attempt's Job and pods carry for a gang scheduler.

    Args:
        labels: Labels of the Job, its pods and their PodGroup.
        job_labels: Labels of the Job alone.
        job_annotations: Annotations of the Job.
        pod_annotations: Annotations of the pods.
        pod_spec: Fields of the pods' spec.
    """

    labels: dict[str, str] = field(default_factory=dict)
    job_labels: dict[str, str] = field(default_factory=dict)
    job_annotations: dict[str, str] = field(default_factory=dict)
    pod_annotations: dict[str, str] = field(default_factory=dict)
    pod_spec: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """A gang scheduler's words on why a gang waits, and next steps for a person. No words: it has not said why."""

    words: str = ""
    steps: tuple[str, ...] = ()


class GangScheduler(Protocol):
    """What a scheduler needs of an attempt's Job. Frozen into the job's template, so it is a value.

    A scheduler that makes no gangs is one too, so that nobody has to ask whether there is one.
    """

    @property
    def name(self) -> str:
        """The name by which a queue asks for it."""

    @property
    def needs(self) -> Needs | None:
        """What the cluster has to serve before pods are made; None if nothing."""

    @property
    def admits_jobs(self) -> bool:
        """Whether it admits Jobs, which are created suspended, and not pods.

        Whether such a Job is suspended, its node selector, tolerations and scheduling gates are the admitter's from
        then on.
        """

    @property
    def place(self) -> str:
        """The queue in which gangs wait, for a sentence."""

    def marks(self, gang: Gang) -> Marks:
        """What Job and pods carry for it."""


class PodGroupScheduler(GangScheduler, Protocol):
    """A scheduler that knows a gang by the PodGroup that its pods are in: what it needs of that, and says about it."""

    @property
    def kind(self) -> Kind[Any]:
        """The kind of its PodGroups."""

    @property
    def gang(self) -> bool:
        """Whether the pods start together or not at all."""

    @property
    def own_group(self) -> bool:
        """Whether each attempt has a PodGroup that we make."""

    @property
    def remedy(self) -> str:
        """The next step if pods are in another PodGroup than the one that was made for them."""

    def spec(self, gang: Gang) -> dict[str, Any]:
        """The spec of the attempt's PodGroup, if it has one."""

    def group_of(self, pod: Pod) -> str:
        """The name of the PodGroup in which this scheduler sees a pod, as the pod says now; empty if it is in none.

        KAI's podgrouper may write it after the pod was made. Another scheduler's key may be there too, and is no news:
        with the gate WorkloadWithJob the Job controller puts pods into a group of Kubernetes' own.
        """

    def has_member(self, pod: Pod) -> bool:
        """Whether a pod of the attempt is in a PodGroup, as far as that is in doubt: the API server may drop it."""

    def has_seen(self, group: PodGroup) -> bool:
        """Whether it has looked at a PodGroup, as far as that is in doubt: gangs may be switched off in it."""

    def said(self, group: PodGroup, queue_state: str | None) -> Said:
        """What it says about a PodGroup that waits.

        Args:
            queue_state: The state of its Queue in the scheduler's words, empty if there is no such Queue; None if that
                is not known, or the scheduler says it of the PodGroup.
        """
