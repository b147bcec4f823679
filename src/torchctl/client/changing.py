"""Says what may be changed in a job as it is now. Pure."""

from torchctl.api.conditions import JobCondition
from torchctl.api.names import GROUP
from torchctl.api.phases import TERMINAL
from torchctl.client.errors import UsageError
from torchctl.client.views import JobView
from torchctl.runtime.conditions import is_true

__all__ = ["RESTARTING", "check_alive", "check_restart", "check_scale", "stands_still"]

RESTARTING = f"{GROUP}/restarting"
"""Annotation of a job that is suspended because somebody restarts it. If that program is killed, another goes on."""


def check_alive(job: JobView) -> None:
    """Raises UsageError if a job has ended: it is never run again."""
    name, phase = job.metadata.name, job.status.phase
    if phase in TERMINAL:
        raise UsageError(f"{_text(job)} has ended ({phase}) and is never run again", "Submit it under another name.")
    if job.metadata.deletion_timestamp is not None:
        raise UsageError(f"{_text(job)} is being deleted", f"Submit it again once `kubectl get trj {name}` is empty.")


def check_restart(job: JobView) -> None:
    """Raises UsageError if a job cannot begin its next attempt."""
    check_alive(job)
    if job.spec.suspend and RESTARTING not in job.metadata.annotations:
        raise UsageError(f"{_text(job)} is suspended", f"`kubectl torchrun resume {job.metadata.name}` starts it.")


def check_scale(job: JobView, nodes: int) -> None:
    """Raises UsageError if a job cannot have so many nodes."""
    check_alive(job)
    elastic = job.spec.elastic
    if elastic is None:
        raise UsageError(f"{_text(job)} has a fixed size", "Submit it again with --elastic MIN:MAX.")
    if not elastic.min_nodes <= nodes <= elastic.max_nodes:
        raise UsageError(
            f"{_text(job)} can have {elastic.min_nodes} to {elastic.max_nodes} nodes, not {nodes}",
            "Choose a number between, or submit it again with another --elastic.",
        )


def stands_still(job: JobView, generation: int) -> bool:
    """Tells if the operator has stopped the job because of the spec that has this generation, or a later one."""
    status = job.status
    return status.observed_generation >= generation and is_true(status.conditions, JobCondition.SUSPENDED)


def _text(job: JobView) -> str:
    return f"TorchrunJob {job.metadata.name} in namespace {job.metadata.namespace}"
