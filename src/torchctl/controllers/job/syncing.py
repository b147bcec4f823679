"""Step two: the workspace. Which sync pod should exist, whether the code is there, and what is wrong if it is not."""

import json
from dataclasses import dataclass

import msgspec

from torchctl.api import names
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import Failure, WorkspaceStatus
from torchctl.api.kube import Pod
from torchctl.controllers.job import pods
from torchctl.controllers.job.children.sync import FETCH
from torchctl.controllers.job.children.workspace import serves
from torchctl.controllers.job.finding import Finding
from torchctl.controllers.job.frozen import FrozenTemplate
from torchctl.controllers.job.observed import Observed
from torchctl.runtime.conditions import find

__all__ = ["TRIES", "Syncing", "assess", "missing_claim"]

TRIES = 3
"""Sync pods that may fail before the job does."""


@dataclass(frozen=True, slots=True)
class Syncing:
    """How far the workspace is.

    Args:
        number: The try whose pod should exist, None where there is nothing to do.
        report: What was synced.
        failure: The last try's failure, when there is no further one.
    """

    finding: Finding
    number: int | None = None
    report: WorkspaceStatus | None = None
    failure: Failure | None = None


def assess(observed: Observed, template: FrozenTemplate) -> Syncing:
    """Judges the workspace from the claim and the latest sync pod; what was ready once stays so."""
    if template.workspace is None:
        return Syncing(Finding(True, JobReason.NO_WORKSPACE, "the job has no workspace"))
    status = observed.job.status
    known = find(status.conditions, JobCondition.WORKSPACE_READY)
    ready = known is not None and known.status == "True"
    latest = max(observed.sync_pods, key=_number, default=None)
    if ready and known is not None and (not serves(template) or _all_pulled(observed, template)):
        return Syncing(Finding(True, known.reason, known.message), report=status.workspace)
    lost = _claim_lost(observed, template, was_synced=status.workspace is not None)
    if lost is not None:
        return Syncing(lost, report=status.workspace)
    if latest is None:
        message = f"pod {names.sync_pod(observed.job.metadata.name)} is about to be created"
        return Syncing(Finding(False, JobReason.SYNCING, message), 0)
    return _judge(latest, template, status.workspace)


def _claim_lost(observed: Observed, template: FrozenTemplate, *, was_synced: bool) -> Finding | None:
    workspace = template.workspace
    assert workspace is not None
    name = workspace.claim or names.workspace_claim(observed.job.metadata.name)
    claim = observed.claims.get(name) if workspace.claim else observed.workspace
    if claim is not None and claim.status.phase == "Lost":
        message = f"PersistentVolumeClaim {name} has lost its volume: submit the job again"
        return Finding(False, JobReason.CLAIM_LOST, message, warn=True)
    if claim is None and workspace.claim:
        return missing_claim(name)
    if claim is None and was_synced:
        message = f"PersistentVolumeClaim {name} was deleted after the sync: submit the job again"
        return Finding(False, JobReason.CLAIM_LOST, message, warn=True)
    return None


def missing_claim(name: str) -> Finding:
    """A claim of the user's that is not there (yet)."""
    message = f"PersistentVolumeClaim {name} does not exist; create it, this job goes on by itself then"
    return Finding(False, JobReason.CLAIM_NOT_FOUND, message, warn=True)


def _judge(pod: Pod, template: FrozenTemplate, known: WorkspaceStatus | None) -> Syncing:
    name, number = pod.metadata.name, _number(pod)
    if pod.metadata.deletion_timestamp is not None:
        return Syncing(
            Finding(False, JobReason.SYNCING, f"pod {name} is being deleted; another follows when it is gone")
        )
    if pods.is_ready(pod) if serves(template) else pods.succeeded(pod):
        report = _report(pod) or known
        done = f" at {report.revision}" if report and report.revision else ""
        ready = Finding(True, JobReason.WORKSPACE_READY, f"pod {name} has brought the workspace{done}")
        return Syncing(ready, number if serves(template) else None, report)
    if pod.status.phase in ("Failed", "Succeeded"):
        return _failed(pod, number)
    return Syncing(_progress(pod, template), number)


def _failed(pod: Pod, number: int) -> Syncing:
    name, cause = pod.metadata.name, _cause(pod)
    said = f"pod {name} failed (try {number + 1} of {TRIES}): {cause.message}"
    if number + 1 < TRIES:
        return Syncing(Finding(False, JobReason.SYNC_FAILED, said, warn=True), number + 1)
    message = f"{said}; see `kubectl logs {name} -c {FETCH}`, correct the source and submit the job again"
    return Syncing(Finding(False, JobReason.SYNC_FAILED, message, warn=True), failure=cause)


def _cause(pod: Pod) -> Failure:
    fatal = pods.fatal(pod)
    code = fatal[1].exit_code if fatal else None
    told = (fatal[1].message.strip() if fatal else "") or pod.status.message or pod.status.reason
    return Failure(
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        exit_code=code,
        reason=pod.status.reason or (fatal[1].reason if fatal else ""),
        message=pods.shorten(told) or f"exit code {code}",
    )


def _progress(pod: Pod, template: FrozenTemplate) -> Finding:
    problem = pods.problem(pod)
    if problem is not None:
        return Finding(False, *problem, warn=True)
    name, workspace = pod.metadata.name, template.workspace
    assert workspace is not None
    if pods.waits_for_claim(pod):
        message = f"pod {name} waits for its PersistentVolumeClaim to be bound; if it stays, see `kubectl describe pvc`"
        return Finding(False, JobReason.SYNCING, message)
    if workspace.uploaded:
        message = f"pod {name} waits for the workspace to be uploaded; it gives up after {workspace.timeout_s} s"
        return Finding(False, JobReason.WAITING_FOR_UPLOAD, message)
    return Finding(False, JobReason.SYNCING, f"pod {name} is bringing the workspace ({workspace.source})")


def _report(pod: Pod) -> WorkspaceStatus | None:
    """What the fetch container says in its termination message; nothing where it is no such report."""
    ended = pods.termination(pod, FETCH)
    try:
        said = json.loads(ended.message) if ended else None
        return msgspec.convert(said, WorkspaceStatus) if said else None
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def _all_pulled(observed: Observed, template: FrozenTemplate) -> bool:
    done = [pod for pod in observed.pods if pods.pulled(pod, names.INIT_CONTAINER) or pods.succeeded(pod)]
    return len(done) >= template.nodes


def _number(pod: Pod) -> int:
    tail = pod.metadata.name.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else 0
