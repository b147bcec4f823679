"""What should exist for a job right now: a pure function of what was observed.

How the reconciler uses it (the interface besides `Observed`):

- `plan.children` are applied in order, and the first refusal stops the rest of them: a later child is of no use
  without the earlier. `child.ours` recognises our own object under the child's name.
- Before anything is frozen there are no children: `derive` writes `status.queueRevision` first (guarded by
  resourceVersion), and the children come with the next pass.
- `plan.remove` is deleted by uid. Nothing is removed, and a Job that would run on is only stopped, once the outcome
  stands in status.
- `plan.idle` says that the job is being deleted or has ended: status stays as it is.
- Where `plan.asks_why` is true, the reconciler reads the newest Event `FailedCreate` of the child Job and puts its
  message into `Observed.create_failure`: only there is written why pods were refused.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchctl.api import labels
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE
from torchctl.api.phases import TERMINAL, Phase
from torchctl.controllers.job import admission, outcome, syncing
from torchctl.controllers.job import workers as worker_pods
from torchctl.controllers.job.children import podgroup, revision, service, sync, workers, workspace
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.finding import Finding
from torchctl.controllers.job.freezing import Frozen, freeze
from torchctl.controllers.job.frozen import FrozenTemplate
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.outcome import Outcome
from torchctl.controllers.job.syncing import Syncing
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.intent import Ownership, controlled_by
from torchctl.runtime.kinds import Key, Kind, ObjectMeta

__all__ = ["REFUSAL_REQUEUE_S", "Child", "Plan", "Refusal", "Removal", "plan"]

REFUSAL_REQUEUE_S = 60.0
"""When a refused child is tried again: quotas and policies change without telling us."""
KAI_REQUEUE_S = 30.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """An object that should exist, in its JSON form."""

    kind: Kind[Any]
    body: Json
    ours: Ownership

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


@dataclass(frozen=True, slots=True)
class Removal:
    """An object that has to go: this one, not another of its name."""

    kind: Kind[Any]
    key: Key
    uid: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A child that the API server did not take, or whose name is taken; reason and message as in a condition."""

    kind: str
    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What should exist, what must go, when to look again; and what each step found, for status."""

    children: tuple[Child, ...] = ()
    remove: tuple[Removal, ...] = ()
    requeue_after_s: float | None = None
    idle: bool = False
    frozen: Frozen | None = None
    syncing: Syncing | None = None
    admission: Finding | None = None
    workers: Finding | None = None
    outcome: Outcome | None = None
    asks_why: bool = False

    @property
    def template(self) -> FrozenTemplate | None:
        return self.frozen.template if self.frozen else None


def plan(observed: Observed, settings: OperatorSettings, now: datetime) -> Plan:
    """Decides the next step of a job.

    Args:
        now: The time, aware of its zone.
    """
    job = observed.job
    if job.metadata.deletion_timestamp is not None:
        return Plan(idle=True)
    frozen = freeze(observed, settings)
    if job.status.phase in TERMINAL:
        return _after_the_end(observed, frozen)
    if frozen.template is None:
        return Plan(frozen=frozen, outcome=outcome.judge(observed, None, None, now) if _started(observed) else None)
    state = syncing.assess(observed, frozen.template)
    end = outcome.judge(observed, frozen.template, state, now)
    admitted = admission.assess(observed, frozen.template)
    ready = worker_pods.assess(observed, frozen.template, now, ended=end is not None)
    return Plan(
        children=() if end or frozen.hold or not _recorded(observed, frozen) else _children(observed, frozen, state),
        requeue_after_s=None if end else _requeue(observed, frozen.template, now),
        frozen=frozen,
        syncing=state,
        admission=admitted,
        workers=ready,
        outcome=end,
        asks_why=end is None and worker_pods.are_overdue(observed, frozen.template, now),
    )


def _started(observed: Observed) -> bool:
    return observed.job.status.start_time is not None or observed.worker_job is not None


def _recorded(observed: Observed, frozen: Frozen) -> bool:
    """Whether status already names the template: a crash after the first child then cannot make two of anything."""
    return observed.job.status.queue_revision == frozen.revision


def _requeue(observed: Observed, template: FrozenTemplate, now: datetime) -> float | None:
    if template.kai is not None and not observed.kai_available:
        return KAI_REQUEUE_S
    late = outcome.look_again_s(observed, now)
    return late if late is not None else worker_pods.look_again_s(observed, template, now)


def _after_the_end(observed: Observed, frozen: Frozen) -> Plan:
    """The outcome is committed. What would run on is stopped; all else stays readable."""
    template, owner = frozen.template, Owner.of(observed.job)
    if template is None:
        return Plan(idle=True)
    remove = tuple(
        Removal(POD, Key(owner.namespace, pod.metadata.name), pod.metadata.uid)
        for pod in observed.sync_pods
        if pod.status.phase not in ("Succeeded", "Failed") and pod.metadata.deletion_timestamp is None
    )
    failed = observed.job.status.phase == Phase.FAILED
    stop: tuple[Child, ...] = ()
    if failed and outcome.must_be_stopped(observed):
        body = workers.worker_job(owner, template, observed.job.status.attempt, suspend=True)
        stop = (Child(JOB, body, controlled_by(owner.uid)),)
    return Plan(idle=True, children=stop, remove=remove)


def _children(observed: Observed, frozen: Frozen, state: Syncing) -> tuple[Child, ...]:
    template, owner, attempt = frozen.template, Owner.of(observed.job), observed.job.status.attempt
    assert template is not None
    ours = controlled_by(owner.uid)
    children = [Child(CONTROLLER_REVISION, revision.revision(owner, template, frozen.revision), ours)]
    children += _workspace(observed, template, owner, state)
    children += _checkpoints(observed, template, owner)
    if not state.finding.ok and not _started(observed):
        return tuple(children)
    if template.kai is not None and not observed.kai_available and not _started(observed):
        return tuple(children)
    if template.kai is not None and template.kai.own_group and observed.kai_available:
        children.append(Child(KAI_PODGROUP, podgroup.pod_group(owner, template, attempt), ours))
    children.append(Child(SERVICE, service.worker_service(owner, template, attempt), ours))
    children.append(Child(JOB, workers.worker_job(owner, template, attempt), ours))
    return tuple(children)


def _workspace(observed: Observed, template: FrozenTemplate, owner: Owner, state: Syncing) -> list[Child]:
    """Claim, sync pod and Service of the workspace. A claim that was filled once is never made again, empty."""
    if template.workspace is None:
        return []
    ours, children = controlled_by(owner.uid), []
    if not template.workspace.claim and (observed.workspace is not None or state.report is None):
        children.append(Child(PVC, workspace.workspace_claim(owner, template.workspace), ours))
    if workspace.serves(template):
        children.append(Child(SERVICE, workspace.workspace_service(owner), ours))
    if state.number is not None:
        children.append(Child(POD, sync.sync_pod(owner, template, state.number), ours))
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
