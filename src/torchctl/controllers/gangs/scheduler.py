"""The interface of a gang scheduler: what it needs of an attempt, and what it says about one that waits."""

from dataclasses import dataclass
from typing import Any, Protocol

from torchctl.api.conditions import JobReason
from torchctl.api.kube import Pod
from torchctl.controllers.gangs.groups import PodGroup
from torchctl.runtime.kinds import Kind

__all__ = ["Gang", "GangScheduler", "NotInstalled", "Said"]


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
class NotInstalled:
    """A gang scheduler that the cluster does not have: reason and message of the condition."""

    reason: JobReason
    message: str


@dataclass(frozen=True, slots=True)
class Said:
    """A gang scheduler's words on why a gang waits, and next steps for a person. No words: it has not said why."""

    words: str = ""
    steps: tuple[str, ...] = ()


class GangScheduler(Protocol):
    """What one gang scheduler needs of an attempt, and what it says. Frozen into the job's template, so it is a value.

    A scheduler that makes no gangs is one too, so that nobody has to ask whether there is one.
    """

    @property
    def name(self) -> str:
        """The name by which a queue asks for it."""

    @property
    def kind(self) -> Kind[Any] | None:
        """The kind of its PodGroups, which has to be served before pods are made; None if it has none."""

    @property
    def gang(self) -> bool:
        """Whether the pods start together or not at all."""

    @property
    def own_group(self) -> bool:
        """Whether each attempt has a PodGroup that we make."""

    @property
    def admits_jobs(self) -> bool:
        """Whether it admits Jobs, which are created suspended, and not pods.

        Whether such a Job is suspended, its node selector, tolerations and scheduling gates are the admitter's from
        then on.
        """

    @property
    def place(self) -> str:
        """The queue in which gangs wait, for a sentence."""

    @property
    def remedy(self) -> str:
        """The next step if pods are in another PodGroup than the one that was made for them."""

    def spec(self, gang: Gang) -> dict[str, Any]:
        """The spec of the attempt's PodGroup, if it has one."""

    def labels(self) -> dict[str, str]:
        """Labels of the Job, its pods and the PodGroup."""

    def job_labels(self) -> dict[str, str]:
        """Labels of the Job alone."""

    def job_annotations(self, gang: Gang) -> dict[str, str]:
        """Annotations of the Job."""

    def pod_annotations(self, gang: Gang) -> dict[str, str]:
        """Annotations of the pods."""

    def pod_spec(self, gang: Gang) -> dict[str, Any]:
        """Fields of the pods' spec."""

    def group_of(self, pod: Pod) -> str:
        """The name of the PodGroup in which this scheduler sees a pod, as the pod says now; empty if it is in none.

        KAI's podgrouper may write it after the pod was made. Another scheduler's key may be there too, and is no news:
        with the gate WorkloadWithJob the Job controller puts pods into a group of Kubernetes' own.
        """

    def has_member(self, pod: Pod) -> bool:
        """Whether a pod of the attempt is in a PodGroup, as far as that is in doubt: the API server may drop it."""

    def not_installed(self) -> NotInstalled:
        """Says that the cluster does not serve `kind`."""

    def said(self, group: PodGroup, queue_state: str | None) -> Said:
        """What it says about a PodGroup that waits.

        Args:
            queue_state: The state of its Queue in the scheduler's words, empty if there is no such Queue; None if that
                is not known, or the scheduler says it of the PodGroup.
        """
