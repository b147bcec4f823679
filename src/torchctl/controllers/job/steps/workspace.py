"""Step two: the workspace. Which revision a job needs, whether it is there, and what is wrong if it is not.

A workspace is synced once, and again when volumes.workspace.revision asks for another one. The second time the claim is
written over while the pods of the first time are still there to be read, so what is asked for is written to status
first (`requested`, and the name of the first pod that is asked for it); pods before that one are history. A running
attempt keeps what it has: a new revision is for the next one.
"""

from dataclasses import replace
from datetime import datetime

from torchctl.api import names
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import TorchrunJob, WorkspaceStatus
from torchctl.controllers.finding import Finding
from torchctl.controllers.job import pods
from torchctl.controllers.job.children.workspace import stays
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import reload, syncing, syncpod, tries
from torchctl.controllers.job.steps.syncing import Syncing
from torchctl.controllers.job.steps.tries import number_in
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.conditions import find, is_true

__all__ = ["assess", "missing_claim"]

_FOLLOWS = "; revision "


def assess(observed: Observed, template: FrozenTemplate, now: datetime) -> Syncing:
    """Judges the workspace from the claim and the sync pods; what was ready once stays so for the attempt.

    Args:
        now: The time, aware of its zone.
    """
    if template.workspace is None:
        return Syncing(Finding(True, JobReason.NO_WORKSPACE, "the job has no workspace"))
    recorded = is_true(observed.job.status.conditions, JobCondition.WORKSPACE_READY)
    halt = tries.halt(observed.sync_pods, now, recorded=recorded)
    found = _assess(observed, template, now)
    if not found.finding.ok and found.failure is None:
        late = reload.waits(observed.job, reload.wanted(observed.job))
        found = replace(found, finding=replace(found.finding, message=f"{found.finding.message}{late}"))
    return replace(found, halt=halt)


def _assess(observed: Observed, template: FrozenTemplate, now: datetime) -> Syncing:
    status = observed.job.status
    known = find(status.conditions, JobCondition.WORKSPACE_READY)
    stale = status.workspace is not None and _is_stale(observed.job, status.workspace)
    again = stale and not _is_in_use(observed)
    if known is not None and known.status == "True" and not again and not _still_serves(observed, template):
        stays = Finding(True, known.reason, known.message.partition(_FOLLOWS)[0])
        return _noted(Syncing(stays, report=status.workspace), observed, stale=stale)
    lost = _claim_lost(observed, template, was_synced=status.workspace is not None)
    if lost is not None:
        return Syncing(lost, report=status.workspace)
    if again:
        return _again(observed)
    found = syncing.sync(observed, template, now)
    return syncing.in_time(_noted(found, observed, stale=stale), observed, template, now)


def missing_claim(name: str) -> Finding:
    """A claim of the user's that is not there (yet)."""
    message = f"PersistentVolumeClaim {name} does not exist; create it, this job goes on by itself then"
    return Finding(False, JobReason.CLAIM_NOT_FOUND, message, warn=True)


# What is asked for, and what there is.


def _is_stale(job: TorchrunJob, there: WorkspaceStatus) -> bool:
    """Whether a sync pod has to bring another revision than the one that was synced."""
    wanted = reload.wanted(job)
    return not reload.is_met(wanted, there) and not reload.is_sent(job.spec, there, wanted)


def _is_in_use(observed: Observed) -> bool:
    """Whether workers of an attempt may read the workspace."""
    return observed.was_started or not all(map(pods.has_ended, observed.old_pods))


def _still_serves(observed: Observed, template: FrozenTemplate) -> bool:
    """Whether there may be workers that have not pulled the workspace yet."""
    if not stays(template):
        return False
    if template.hot_reload:
        return True
    done = [pod for pod in observed.pods if pods.pulled(pod, names.INIT_CONTAINER) or pods.succeeded(pod)]
    return template.elastic is not None or len(done) < template.nodes


def _noted(found: Syncing, observed: Observed, *, stale: bool) -> Syncing:
    if not stale or not found.finding.ok:
        return found
    message = f"{found.finding.message}{_FOLLOWS}{reload.wanted(observed.job)} follows with the next attempt"
    return replace(found, finding=replace(found.finding, message=message))


def _again(observed: Observed) -> Syncing:
    """Starts the sync of another revision: status records which one, and its first pod."""
    wanted, last = reload.wanted(observed.job), observed.job.status.workspace
    assert last is not None
    first = max(syncpod.following(observed.sync_pods), number_in(last.pod) + 1)
    report = WorkspaceStatus(requested=wanted, pod=names.sync_pod(observed.job.metadata.name, first))
    return Syncing(Finding(False, JobReason.SYNCING, f"revision {wanted} is about to be synced"), report=report)


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
    if workspace.cache and observed.cache is None:
        return missing_claim(workspace.cache)
    if claim is None and was_synced:
        message = f"PersistentVolumeClaim {name} was deleted after the sync: submit the job again"
        return Finding(False, JobReason.CLAIM_LOST, message, warn=True)
    return None
