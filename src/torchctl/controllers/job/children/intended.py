"""Which children should exist at each stage of a job's life."""

from torchctl.api import labels
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE
from torchctl.controllers.job.actions import Child
from torchctl.controllers.job.attempts import retention as ending
from torchctl.controllers.job.attempts.lifecycle import Stage
from torchctl.controllers.job.children import podgroup, revision, service, sync, workers, workspace
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps.workspace import Syncing
from torchctl.controllers.job.template.freezing import Frozen
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.intent import Ownership, controlled_by
from torchctl.runtime.kinds import ObjectMeta

__all__ = ["children"]


def children(
    observed: Observed, frozen: Frozen, state: Syncing, stage: Stage, *, lets_go: bool = False
) -> tuple[Child, ...]:
    """The children that should exist at a stage of the job's life, in the order in which they are made.

    Args:
        lets_go: Whether the attempt's Job counts workers as failed that were told to stop.
    """
    if frozen.hold and stage is Stage.RUN:
        return ()
    if stage is Stage.RUN:
        return _workers(observed, frozen, state, lets_go=lets_go)
    if stage is Stage.SUSPENDED:
        return _suspended(observed, frozen, state, lets_go=lets_go)
    template = frozen.template
    assert template is not None
    return ending.stopped(observed, template) if stage is Stage.WAIT else ()


def _suspended(observed: Observed, frozen: Frozen, state: Syncing, *, lets_go: bool) -> tuple[Child, ...]:
    """Everything but the workers, whose Job, where there is one, is kept without pods."""
    template = frozen.template
    assert template is not None
    found = _ground(observed, frozen, state)
    job = observed.worker_job
    if job is not None and not ending.has_ended(job):
        found.append(ending.stop(observed, template, job, lets_go=lets_go))
    return (*found, *ending.stopped(observed, template))


def _ground(observed: Observed, frozen: Frozen, state: Syncing) -> list[Child]:
    """What comes before the workers: template and workspace."""
    template, owner = frozen.template, Owner.of(observed.job)
    assert template is not None
    known = observed.revision
    number = known.revision if known is not None else observed.job.status.attempt + 1
    body = revision.revision(owner, template, frozen.revision, number)
    return [Child(CONTROLLER_REVISION, body, controlled_by(owner.uid)), *_workspace(observed, template, owner, state)]


def _workers(observed: Observed, frozen: Frozen, state: Syncing, *, lets_go: bool) -> tuple[Child, ...]:
    template, owner, attempt = frozen.template, Owner.of(observed.job), observed.job.status.attempt
    assert template is not None
    ours, nodes, started = controlled_by(owner.uid), template.desired(observed.job.spec), observed.was_started
    found = _ground(observed, frozen, state) + _checkpoints(observed, template, owner)
    if not state.finding.ok and not started:
        return tuple(found)
    if template.kai is not None and not observed.kai_available and not started:
        return tuple(found)
    if template.kai is not None and template.kai.own_group and observed.kai_available:
        found.append(Child(KAI_PODGROUP, podgroup.pod_group(owner, template, attempt), ours))
    found.append(Child(SERVICE, service.worker_service(owner, template, attempt), ours))
    found.append(Child(JOB, workers.worker_job(owner, template, attempt, nodes=nodes, lets_go=lets_go), ours))
    return tuple(found)


def _workspace(observed: Observed, template: FrozenTemplate, owner: Owner, state: Syncing) -> list[Child]:
    """Claim, sync pod and Service of the workspace. A claim that was filled once is never made again, empty."""
    if template.workspace is None:
        return []
    ours, children = controlled_by(owner.uid), []
    if not template.workspace.claim and (observed.workspace is not None or state.report is None):
        children.append(Child(PVC, workspace.workspace_claim(owner, template), ours))
    if workspace.serves(template):
        children.append(Child(SERVICE, workspace.workspace_service(owner, template), ours))
    if state.number is not None:
        children.append(Child(POD, sync.sync_pod(owner, template, state.number, revision=state.revision), ours))
    return children


def _checkpoints(observed: Observed, template: FrozenTemplate, owner: Owner) -> list[Child]:
    """The job's own checkpoints claim. One that an earlier job of this name left is used and keeps having no owner."""
    kept = template.checkpoints
    if kept is None or kept.claim:
        return []
    found, ours = observed.checkpoints, controlled_by(owner.uid)
    owned = ours(found.metadata) if found is not None else not kept.retain
    body = workspace.checkpoints_claim(owner, template, owned=owned)
    return [Child(PVC, body, ours if owned else _left_by(owner.name))]


def _left_by(job: str) -> Ownership:
    """The ownership of what outlives a job: nobody controls it, and it says whose name it has."""

    def ours(meta: ObjectMeta) -> bool:
        return not any(ref.controller for ref in meta.owner_references) and meta.labels.get(labels.JOB_NAME) == job

    return ours
