"""Reads a lost pod once; `rules` names the cause of its loss, `verdict` picks the first of several."""

from dataclasses import dataclass
from datetime import datetime

from torchctl.api.causes import Cause
from torchctl.api.errorline import error_line
from torchctl.api.job import Failure
from torchctl.api.kube import Pod, Terminated
from torchctl.api.names import INIT_CONTAINER, PREFLIGHT_CONTAINER, TRAINER
from torchctl.controllers.job import pods
from torchctl.controllers.job.failure.rootcause import RootCause, root_cause
from torchctl.runtime.conditions import find

__all__ = ["Evidence", "read"]

_SIGTERM = 15
"""The signal that tells to stop: torchrun reports it of a rank as -15, a container's exit code is 128 + 15."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One pod that failed or was told to stop.

    Args:
        disruption: Reason of the pod's condition DisruptionTarget (k8s.io/api core/v1, PodReason*).
        told: Whether it was told to stop before it ended by itself.
        container: Name of the container that failed, empty if none says that it did.
        end: How that container ended.
        report: What torchrun or the program said at the end of the trainer.
    """

    pod: Pod
    disruption: str
    told: bool
    container: str
    end: Terminated
    report: RootCause

    @property
    def reason(self) -> str:
        return self.pod.status.reason

    @property
    def obeyed(self) -> bool:
        """Whether the pod only did what it was told: then the way it ended says nothing about what went wrong.

        If a rank fails, its peers may end before its torchrun does, and the pod is told to stop because of them. So a
        report of a failed rank is its own doing.
        """
        reported = not self.report.follows and self.report.exit_code not in (None, -_SIGTERM)
        out_of_memory = self.end.reason == "OOMKilled" and not _is_beside(self.container)
        return self.told and not reported and not out_of_memory

    @property
    def at(self) -> datetime | None:
        """When it was told to stop, by the control plane's clock; else when it ended, by its node's.

        A pod goes on after another container than its trainer has failed.
        """
        told, trainer = pods.told_at(self.pod), pods.termination(self.pod, TRAINER) or Terminated()
        ends = (end.finished_at for end in (trainer, self.end) if end.finished_at is not None)
        return told if self.told else max(ends, default=told)

    def failure(self, cause: Cause, rank: int | None) -> Failure:
        """What status says of the pod; `rank` is its trainer's if torchrun did not tell it."""
        pod, report = self.pod, self.report
        code = self.end.exit_code if report.exit_code is None else report.exit_code
        reason, said = self.end.reason, report.message or pods.shorten(self.end.message)
        if self.obeyed:
            reason, said = str(cause), pod.status.message or "the pod was told to stop before it ended"
        elif _is_beside(self.container):
            said = f"container {self.container}: {error_line(self.end.message) or 'it failed and said nothing'}"
        before = self.container not in ("", TRAINER)  # before its trainer a worker has no rank
        return Failure(
            pod=pod.metadata.name,
            node=pod.spec.node_name,
            rank=report.rank if report.rank is not None or before else rank,
            exit_code=code if self.container and not self.obeyed else None,
            reason=self.reason or reason,
            message=said or pod.status.message,
        )


def read(pod: Pod) -> Evidence | None:
    """Reads a pod; None if it has neither failed nor been told to stop."""
    container, end = pods.fatal(pod) or ("", Terminated(reason="Failed"))
    report = root_cause(end.message) if container == TRAINER else RootCause()
    stopped = report.exit_code == -_SIGTERM or end.exit_code == 128 + _SIGTERM  # though its node's clock may be behind
    stopped = stopped or _ended_after_deletion(pod, container, end)
    told = pods.told_to_stop(pod) or (stopped and pod.metadata.deletion_timestamp is not None)
    if not told and container != TRAINER and pod.status.phase != "Failed":
        return None
    disrupted = find(pod.status.conditions, "DisruptionTarget")
    disruption = disrupted.reason if disrupted is not None and disrupted.status == "True" else ""
    return Evidence(pod, disruption, told, container, end, report)


def _is_beside(container: str) -> bool:
    """Whether it is one beside the trainer, which goes on without it."""
    return container not in ("", TRAINER, INIT_CONTAINER, PREFLIGHT_CONTAINER)


def _ended_after_deletion(pod: Pod, container: str, end: Terminated) -> bool:
    """Whether a container beside a trainer that was done kept the pod, until the pod was told to stop."""
    told = pods.told_at(pod)
    return _is_beside(container) and told is not None and end.finished_at is not None and told <= end.finished_at
