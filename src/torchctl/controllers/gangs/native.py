"""Kubernetes' own gangs: a PodGroup of scheduling.k8s.io, which kube-scheduler places whole or not at all.

They are alpha. With the feature gates off the API server drops a pod's membership without an error, so it is read back.
Neither a PodGroup nor a Job that names one can change its size, so elastic jobs have none.
"""

from typing import Any

import msgspec

from torchctl.api import names
from torchctl.api.conditions import JobReason
from torchctl.api.kube import Pod
from torchctl.api.nativegangs import NATIVE_PODGROUP, NativePodGroup
from torchctl.controllers.gangs.groups import PodGroup
from torchctl.controllers.gangs.scheduler import Gang, Marks, Needs, Said
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Condition, Kind

__all__ = ["FrozenNative"]

_GATES = "the feature gates GenericWorkload and GangScheduling"


class FrozenNative(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Whether the pods start together; if not, nothing is asked of kube-scheduler."""

    gang: bool

    @property
    def name(self) -> str:
        return names.NATIVE

    @property
    def kind(self) -> Kind[NativePodGroup]:
        return NATIVE_PODGROUP

    @property
    def needs(self) -> Needs | None:
        what = (
            "the API server does not serve podgroups.scheduling.k8s.io: start it with "
            f"--runtime-config=scheduling.k8s.io/v1alpha2=true and {_GATES}; this job goes on by itself then"
        )
        return Needs(NATIVE_PODGROUP, JobReason.NATIVE_GANGS_OFF, what) if self.gang else None

    @property
    def own_group(self) -> bool:
        return self.gang

    @property
    def admits_jobs(self) -> bool:
        return False

    @property
    def place(self) -> str:
        return "the cluster"

    @property
    def remedy(self) -> str:
        return f"switch on {_GATES} of kube-apiserver, kube-controller-manager and kube-scheduler"

    def spec(self, gang: Gang) -> dict[str, Any]:
        """Without a PriorityClass, which takes one more feature gate: the pods have theirs."""
        return {"schedulingPolicy": {"gang": {"minCount": gang.least}}}

    def marks(self, gang: Gang) -> Marks:
        return Marks(pod_spec={"schedulingGroup": {"podGroupName": gang.group}} if self.gang else {})

    def group_of(self, pod: Pod) -> str:
        return pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else ""

    def has_member(self, pod: Pod) -> bool:
        return bool(self.group_of(pod))

    def has_seen(self, group: PodGroup) -> bool:
        """Whether kube-scheduler has tried to place the gang; without its gates it takes the pods one by one."""
        return _scheduled(group) is not None

    def said(self, group: PodGroup, queue_state: str | None) -> Said:
        """kube-scheduler's words. The condition stays True when a member is lost later."""
        scheduled = _scheduled(group)
        if scheduled is None or scheduled.status != "False":
            return Said()
        return Said(scheduled.message or scheduled.reason)


def _scheduled(group: PodGroup) -> Condition | None:
    status = group.status if isinstance(group, NativePodGroup) else None
    return find(status.conditions if status is not None else None, "PodGroupScheduled")
