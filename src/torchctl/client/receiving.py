"""Says where a job's code can be sent now, or what is waited for until it can. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.jobstatus import JobStatus, WorkspaceStatus
from torchctl.api.kube import Pod, Running
from torchctl.api.phases import TERMINAL
from torchctl.runtime.conditions import find, is_true
from torchctl.runtime.kinds import Condition

__all__ = ["Hopeless", "Look", "Receiver", "There", "Waiting", "companion", "look"]

_FETCH = "fetch"
"""The container of the sync pod that takes the code."""
_SERVE = "serve"
"""The container that takes later revisions while the job runs: the job's companion."""

_STEPS = (
    JobCondition.ACCEPTED,
    JobCondition.QUEUE_FOUND,
    JobCondition.DEPENDENCIES_MET,
    JobCondition.WORKSPACE_READY,
)
"""Conditions that come before the workers, in the order in which a job meets them."""

_HOPELESS = frozenset(
    {
        JobReason.INVALID_SPEC,
        JobReason.IMPOSSIBLE_GPU_COUNT,
        JobReason.TOO_MANY_NODES,
        JobReason.IMPOSSIBLE_WORKSPACE,
        JobReason.CONFLICTING_VOLUMES,
        JobReason.QUEUE_NOT_READY,
        JobReason.DEPENDENCY_CYCLE,
        JobReason.FOREIGN_OBJECT,
        JobReason.REFUSED,
        JobReason.QUOTA_EXCEEDED,
    }
)
"""Reasons that somebody has to do something about: who submits a job should hear of them at once."""
_STEP = {str(reason): reason.step for reason in _HOPELESS}
_AGAIN = {
    str(JobReason.REFUSED): ("; correct ", "Correct that, then submit again."),
    str(JobReason.QUOTA_EXCEEDED): ("; raise ", "Raise the quota or free some of it, then submit again."),
}
"""Where the message of a condition goes over to what the operator does, and the step for a person whose submit ends."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """The pod that takes the code. Its uid is the token: who may read the pod may send code to it.

    Args:
        started: When the container that takes it was started, which tells one run of it from the next.
    """

    pod: str
    uid: str
    started: datetime | None = None


@dataclass(frozen=True, slots=True)
class There:
    """The job has its code, and `workspace` says which."""

    workspace: WorkspaceStatus


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing can be sent yet."""

    why: str


@dataclass(frozen=True, slots=True)
class Hopeless:
    """Nothing can ever be sent, or not before somebody has corrected something."""

    why: str
    step: str


Look = Receiver | There | Waiting | Hopeless


def look(status: JobStatus, pods: Sequence[Pod]) -> Look:
    """Judges where a job is on its way to its code.

    Args:
        status: The job's.
        pods: The job's sync pods.
    """
    failed = find(status.conditions, JobCondition.FAILED)
    if failed is not None and failed.status == "True":
        return Hopeless(f"the job has failed: {failed.message}", "")
    if is_true(status.conditions, JobCondition.WORKSPACE_READY):
        return There(status.workspace or WorkspaceStatus())
    open_ = _first_open(status)
    if open_ is not None and open_.reason in _STEP:
        return _hopeless(open_)
    receiver = _receiver(pods)
    if receiver is not None:
        return receiver
    if open_ is None:
        return Waiting("the operator has not looked at the job yet")
    return Waiting(open_.message)


def companion(status: JobStatus, pods: Sequence[Pod]) -> Look:
    """Judges where a later revision of a job that takes up new code can be sent.

    Args:
        status: The job's.
        pods: The job's sync pods.
    """
    if status.phase in TERMINAL:
        return Hopeless(f"the job has ended ({status.phase}) meanwhile", "Submit it under another name.")
    found = _receiver(pods, _SERVE)
    if found is not None:
        return found
    seen = look(status, pods)
    if not isinstance(seen, There):
        return seen
    if is_true(status.conditions, JobCondition.SUSPENDED) and not any(map(_is_alive, pods)):
        return Hopeless("it is suspended, and its companion, a sync pod, is lost: resuming makes another", "Resume it.")
    return Waiting("the job's companion, its sync pod, does not run yet")


def _hopeless(condition: Condition) -> Hopeless:
    if condition.reason not in _AGAIN:
        return Hopeless(condition.message, _STEP[condition.reason])
    marker, step = _AGAIN[condition.reason]
    said = condition.message
    return Hopeless(said.rpartition(marker)[0] or said, step)


def _first_open(status: JobStatus) -> Condition | None:
    """Returns the first condition that keeps the job from having its code."""
    conditions = (find(status.conditions, type_) for type_ in _STEPS)
    return next((one for one in conditions if one is not None and one.status != "True"), None)


def _receiver(pods: Sequence[Pod], container: str = _FETCH) -> Receiver | None:
    there = [(pod.metadata, _running(pod, container)) for pod in pods if pod.metadata.deletion_timestamp is None]
    taking = [Receiver(meta.name, meta.uid, runs.started_at) for meta, runs in there if runs is not None]
    return taking[-1] if taking else None


def _is_alive(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")


def _running(pod: Pod, name: str) -> Running | None:
    containers = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    return next((container.state.running for container in containers if container.name == name), None)
