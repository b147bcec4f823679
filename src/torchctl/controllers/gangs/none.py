"""No gang scheduler: the pods are placed one by one, by the cluster's default scheduler or another."""

from dataclasses import dataclass
from typing import Any

from torchctl.api.kube import Pod
from torchctl.controllers.gangs.groups import PodGroup
from torchctl.controllers.gangs.scheduler import Gang, NotInstalled, Said

__all__ = ["NoGangScheduler"]


@dataclass(frozen=True, slots=True)
class NoGangScheduler:
    """Asks for nothing and says nothing. It has no kind, so nothing can be missing, and no PodGroup to be made."""

    name: str = ""
    kind: None = None
    gang: bool = False
    own_group: bool = False
    admits_jobs: bool = False
    place: str = ""
    remedy: str = ""

    def spec(self, gang: Gang) -> dict[str, Any]:
        raise NotImplementedError("it has no PodGroup")

    def labels(self) -> dict[str, str]:
        return {}

    def job_labels(self) -> dict[str, str]:
        return {}

    def job_annotations(self, gang: Gang) -> dict[str, str]:
        return {}

    def pod_annotations(self, gang: Gang) -> dict[str, str]:
        return {}

    def pod_spec(self, gang: Gang) -> dict[str, Any]:
        return {}

    def group_of(self, pod: Pod) -> str:
        return ""

    def has_member(self, pod: Pod) -> bool:
        return True

    def not_installed(self) -> NotInstalled:
        raise NotImplementedError("it has no kind")

    def said(self, group: PodGroup, queue_state: str | None) -> Said:
        return Said()
