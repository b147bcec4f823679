"""Reads one sync pod: whether it has brought the workspace, how far it is, and what it says of it. Pure."""

import json
from collections.abc import Sequence

import msgspec

from torchctl.api import labels
from torchctl.api.conditions import JobReason
from torchctl.api.job import Failure, WorkspaceStatus
from torchctl.api.kube import Pod
from torchctl.controllers.finding import Finding
from torchctl.controllers.job import pods
from torchctl.controllers.job.children.sync import FETCH
from torchctl.controllers.job.children.workspace import stays
from torchctl.controllers.job.steps import tries
from torchctl.controllers.job.steps.tries import number, revision_of
from torchctl.controllers.job.template.frozen import FrozenTemplate, FrozenWorkspace

__all__ = ["cause", "following", "is_done", "progress", "report", "said"]


def is_done(pod: Pod, template: FrozenTemplate, record: WorkspaceStatus | None) -> bool:
    """Whether the pod has done what workers wait for: it has brought the workspace, and serves it if it has to.

    A companion need not be ready. One of a claim that workers mount has to be once: it notes what there is before them.

    Args:
        record: What status says of the workspace.
    """
    if template.hot_reload and (template.launches or (record is not None and record.revision)):
        return tries.serves(pod)
    return pods.is_ready(pod) if stays(template) else tries.fetched(pod)


def cause(pod: Pod) -> Failure:
    """Says why a pod failed, as a job's status would."""
    ended = tries.failure(pod)
    code = ended.exit_code if ended is not None else None
    told = (ended.message.strip() if ended is not None else "") or pod.status.message or pod.status.reason
    return Failure(
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        exit_code=code,
        reason=pod.status.reason or (ended.reason if ended is not None else ""),
        message=pods.shorten(told) or f"exit code {code}",
    )


def progress(pod: Pod, template: FrozenTemplate) -> Finding:
    """Says how far a pod is that has not done its part yet, and has not ended."""
    problem = pods.problem(pod)
    if problem is not None:
        return Finding(False, *problem, warn=True)
    name, workspace = pod.metadata.name, template.workspace
    assert workspace is not None
    if tries.is_kept(pod):
        message = f"pod {name} takes over: it serves what the claim has once it is ready"
        return Finding(False, JobReason.SYNCING, message)
    if pods.waits_for_claim(pod):
        message = f"pod {name} waits for its PersistentVolumeClaim to be bound; if it stays, see `kubectl describe pvc`"
        return Finding(False, JobReason.SYNCING, message)
    if pod.spec.node_name and not tries.has_begun(pod):
        waits = f"waits on node {pod.spec.node_name} for its volumes and its image"
        return Finding(False, JobReason.SYNCING, f"pod {name} {waits}; if it stays, see `kubectl describe pod {name}`")
    if tries.fetched(pod):
        late = [status.name for status in pod.status.container_statuses or () if not status.ready]
        message = f"pod {name} has brought the workspace, and serves it when it is ready; not yet: {', '.join(late)}"
        return Finding(False, JobReason.SYNCING, message)
    if workspace.uploaded:
        return _awaits(pod, workspace)
    return Finding(False, JobReason.SYNCING, f"pod {name} is bringing the workspace ({workspace.source})")


def _awaits(pod: Pod, workspace: FrozenWorkspace) -> Finding:
    """A sync pod to which a person has to bring the code."""
    name, job = pod.metadata.name, pod.metadata.labels.get(labels.JOB_NAME, "")
    if not tries.has_begun(pod):
        return Finding(False, JobReason.SYNCING, f"pod {name}, which takes the upload, is waiting for a node")
    how = f"run `kubectl torchrun sync {job}` in its directory" if workspace.receives else "see docs/storage.md"
    until = f"it gives up after {workspace.timeout_s} s"
    message = f"pod {name} waits for the workspace to be uploaded: {how}; {until}"
    return Finding(False, JobReason.WAITING_FOR_UPLOAD, message)


def report(pod: Pod, record: WorkspaceStatus | None) -> WorkspaceStatus | None:
    """Reads the fetch container's report from its termination message, and adds the revision that was asked for.

    If the message is no such report, only the revision that was asked for is known.
    """
    asked, first, report = revision_of(pod), record.pod if record is not None else "", said(pod)
    if report is None:
        return record or (WorkspaceStatus(requested=asked) if asked else None)
    return msgspec.structs.replace(report, requested=asked, pod=first)


def said(pod: Pod) -> WorkspaceStatus | None:
    """Reads the fetch container's report; None if it has not ended, or said something else."""
    ended = pods.termination(pod, FETCH)
    try:
        said = json.loads(ended.message) if ended else None
        return msgspec.convert(said, WorkspaceStatus) if said else None
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def following(every: Sequence[Pod]) -> int:
    """The number of the next sync pod."""
    return max((number(pod) + 1 for pod in every), default=0)
