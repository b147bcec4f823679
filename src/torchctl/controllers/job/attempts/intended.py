"""Lists the children that should exist at each stage of a job's life."""

from dataclasses import dataclass
from functools import partial

from torchctl.api import labels
from torchctl.api.kube import CONTROLLER_REVISION, JOB, POD, PVC, SERVICE
from torchctl.controllers.job.actions import Child, Json
from torchctl.controllers.job.attempts import retention
from torchctl.controllers.job.attempts.stage import Ended, Run, Settle, Stage, Suspended, Wait
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.children import podgroup, revision, service, sync, workers, workspace
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.steps import admission
from torchctl.controllers.job.steps.syncing import Syncing
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.intent import Ownership, controlled_by
from torchctl.runtime.kinds import ObjectMeta, controller_in

__all__ = ["Ground", "children"]


@dataclass(frozen=True, slots=True)
class Ground:
    """The values that the children are made from.

    Args:
        template: The template of the case, which is there.
        revision: The name of its ControllerRevision.
        hold: Whether nothing new may be started.
        syncing: The state of the workspace's sync.
    """

    case: Case
    template: FrozenTemplate
    revision: str
    hold: bool
    syncing: Syncing

    @property
    def owner(self) -> Owner:
        """The job as its children name it."""
        return Owner.of(self.case.observed.job)


def children(ground: Ground, stage: Stage) -> tuple[Child, ...]:
    """The children that should exist at a stage of the job's life, in the order in which they are made.

    A Job of an earlier attempt is ended whenever it goes on: somebody else may release one that they suspended.
    """
    match stage:
        case Run():
            return (*retention.stopped(ground.case), *(() if ground.hold else _workers(ground)))
        case Suspended():
            return (*_suspended(ground), *retention.stopped(ground.case))
        case Wait():
            return retention.stopped(ground.case)
        case Settle() | Ended():
            return ()


def _suspended(ground: Ground) -> tuple[Child, ...]:
    """Returns every child but the workers. Their Job is ended, if there is one, because resuming makes another.

    Unless Kueue admits it: then it is paused, and the same Job resumes.
    """
    job = ground.case.observed.worker_job
    stop = retention.stop(ground.case, job) if job is not None and not ground.case.pausable else ()
    return (*_before_workers(ground), *stop)


def _before_workers(ground: Ground) -> list[Child]:
    """Template and workspace."""
    known = ground.case.observed.revision
    number = known.revision if known is not None else ground.case.status.attempt + 1
    body = revision.revision(ground.owner, ground.template, ground.revision, number)
    return [Child(CONTROLLER_REVISION, body, controlled_by(ground.owner.uid)), *_workspace(ground)]


def _workers(ground: Ground) -> tuple[Child, ...]:
    observed, template, owner = ground.case.observed, ground.template, ground.owner
    ours, attempt, started = controlled_by(owner.uid), observed.job.status.attempt, observed.was_started
    found = _before_workers(ground) + _checkpoints(ground)
    if not ground.syncing.finding.ok and not started:
        return tuple(found)
    scheduler = template.gang_scheduler
    if (observed.lacks(scheduler) and not started) or not admission.may_start(observed, template):
        return tuple(found)
    groups = template.pod_groups
    if groups is not None and observed.makes_group(groups):
        found.append(Child(groups.kind, podgroup.pod_group(owner, template, attempt), ours))
    found.append(Child(SERVICE, service.worker_service(owner, template, attempt), ours))
    let_in = admission.granted(observed.job.status) if template.coordinated else None
    body = partial(
        workers.worker_job,
        owner,
        template,
        attempt,
        nodes=admission.asked(observed, template),
        made=observed.worker_job,
        let_in=let_in,
    )
    found.append(Child(JOB, body(), ours, first=body(first=True) if scheduler.admits_jobs else None))
    return tuple(found)


def _workspace(ground: Ground) -> list[Child]:
    """Claim, sync pod and Service of the workspace. A claim that was filled once is never made again, empty."""
    template, owner, syncing = ground.template, ground.owner, ground.syncing
    if template.workspace is None:
        return []
    ours, found = controlled_by(owner.uid), []
    if not template.workspace.claim and (ground.case.observed.workspace is not None or syncing.report is None):
        found.append(Child(PVC, workspace.workspace_claim(owner, template), ours))
    if workspace.serves(template):
        found.append(Child(SERVICE, workspace.workspace_service(owner, template), ours))
    if syncing.number is not None:
        found.append(Child(POD, _sync_pod(ground, syncing.number), ours))
    return found


def _sync_pod(ground: Ground, number: int) -> Json:
    syncing = ground.syncing
    return sync.sync_pod(ground.owner, ground.template, number, revision=syncing.revision, kept=syncing.kept)


def _checkpoints(ground: Ground) -> list[Child]:
    """The job's own checkpoints claim. One that an earlier job of this name left is used and keeps having no owner."""
    kept, owner = ground.template.checkpoints, ground.owner
    if kept is None or kept.claim:
        return []
    found, ours = ground.case.observed.checkpoints, controlled_by(owner.uid)
    owned = ours(found.metadata) if found is not None else not kept.retain
    body = workspace.checkpoints_claim(owner, ground.template, owned=owned)
    return [Child(PVC, body, ours if owned else _left_by(owner.name))]


def _left_by(job: str) -> Ownership:
    """Returns the ownership of an object that outlives its job: no controller, and a label with the job's name."""

    def ours(meta: ObjectMeta) -> bool:
        return controller_in(meta) is None and meta.labels.get(labels.JOB_NAME) == job

    return ours
