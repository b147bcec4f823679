"""Reads the evidence of a pod's loss once; `rules` names its cause, `verdict` picks the first of several."""

from dataclasses import dataclass
from datetime import datetime

from torchctl.api.common import RdzvBackend
from torchctl.api.kube import KaiPodGroup, Pod, Terminated
from torchctl.api.names import TRAINER
from torchctl.controllers.job import pods
from torchctl.controllers.job.failure.evictions import preempted
from torchctl.controllers.job.failure.rootcause import RootCause, root_cause
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.conditions import find

__all__ = ["Evidence", "rank_of", "read"]

_SIGTERM = -15
"""The exit code that torchrun reports of a rank that was told to stop."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One pod that failed or was told to stop.

    Args:
        disruption: Reason of the pod's condition DisruptionTarget (k8s.io/api core/v1, PodReason*).
        preempted: Whether a scheduler took its place.
        told: Whether it was told to stop before it ended by itself.
        began: Whether a container of it may have run besides those that prepare it.
        container: Name of the container that failed, empty if none says that it did.
        end: How that container ended.
        report: What torchrun or the program said at the end of the trainer.
        ended_at: When it ended, by its node's clock.
        told_at: When it was told to stop, by the control plane's clock.
    """

    pod: Pod
    disruption: str
    preempted: bool
    told: bool
    began: bool
    container: str
    end: Terminated
    report: RootCause
    ended_at: datetime | None
    told_at: datetime | None

    @property
    def at(self) -> datetime | None:
        """The time at which the pod was lost."""
        if self.told and not self.speaks and not self.report.follows:
            return self.told_at
        return min((one for one in (self.ended_at, self.told_at) if one is not None), default=None)

    @property
    def reason(self) -> str:
        return self.pod.status.reason

    @property
    def speaks(self) -> bool:
        """Whether its end is its own doing: of a pod that was told to stop, only a report of a failed rank shows it.

        If a rank fails, its peers may end before its torchrun does, and the pod is told to stop because of them.
        """
        reported = not self.report.follows and self.report.exit_code not in (None, _SIGTERM)
        return bool(self.container) and (not self.told or reported or self.end.reason == "OOMKilled")


def read(pod: Pod, group: KaiPodGroup | None, *, gave_up: bool) -> Evidence | None:
    """Reads a pod; None if it is not lost.

    Args:
        group: KAI's PodGroup of the pod.
        gave_up: Whether its Job has failed: a pod that failed although its trainer is done may be why.
    """
    container, end = pods.fatal(pod) or ("", Terminated())
    report = root_cause(end.message) if container == TRAINER else RootCause()
    leaves = pod.metadata.deletion_timestamp is not None
    told = pods.told_to_stop(pod) or (leaves and (report.exit_code == _SIGTERM or end.exit_code == 128 - _SIGTERM))
    failed = pods.failed(pod) or (gave_up and not leaves and pod.status.phase == "Failed")
    if not told and not failed:
        return None
    ended = _ended_at(pod, end)
    disrupted = find(pod.status.conditions, "DisruptionTarget")
    return Evidence(
        pod=pod,
        disruption=disrupted.reason if disrupted is not None and disrupted.status == "True" else "",
        preempted=preempted(pod, group),
        told=told,
        began=pods.has_begun(pod),
        container=container,
        end=end,
        report=report,
        ended_at=ended,
        told_at=pods.told_at(pod),
    )


def _ended_at(pod: Pod, end: Terminated) -> datetime | None:
    """Returns when the pod ended, by its node's clock.

    That is the later of its trainer's end and `end`, because a pod goes on after another container has failed.
    """
    trainer = pods.termination(pod, TRAINER)
    ended = max((one.finished_at for one in (trainer, end) if one is not None and one.finished_at), default=None)
    return ended or (None if pods.has_begun(pod) else pod.status.start_time)  # a pod that its node refused has no other


def rank_of(index: int | None, template: FrozenTemplate | None) -> int | None:
    """The rank of a pod with one process if torchrun did not tell it; None if only torchrun knows.

    Static rendezvous takes the index. c10d and etcd-v2 sort the workers' names as text (torch's dynamic_rendezvous),
    so worker 10 comes before worker 2; on the host's network they have no names of that order.
    """
    if template is None or index is None or template.nproc_per_node != 1 or template.elastic:
        return None
    if template.rendezvous.backend == RdzvBackend.STATIC:
        return index
    if template.rendezvous.backend == RdzvBackend.ETCD or template.pod["spec"].get("hostNetwork"):
        return None
    order = sorted(range(template.nodes), key=lambda node: f"{node}.")
    return order.index(index) if index < template.nodes else None
