"""Plans the objects that should exist for a job right now: a pure function of the observed state.

The reconciler relies on three rules besides `Observed`:

- `Idle` is a job that is being deleted or has ended: its status stays as it is.
- A decision that holds for ever is written to status first, and acted upon by the next pass: the name of the template
  (`status.queueRevision`) and everything in `Steps.life` (attempt, incident, suspension, outcome). Such a pass has no
  actions.
- A plan's questions are answered by the API server, and the plan is made again with the answers, because the cache does
  not have them, or may have them late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto

from torchctl.api.causes import Cause
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import Failure, JobStatus, WorkspaceStatus
from torchctl.api.kube import POD
from torchctl.api.phases import TERMINAL
from torchctl.controllers.finding import Finding, Refusal
from torchctl.controllers.job import delays
from torchctl.controllers.job.actions import Actions, Removal, earliest
from torchctl.controllers.job.attempts import lifecycle, recovery, retention
from torchctl.controllers.job.attempts.intended import Ground, children
from torchctl.controllers.job.attempts.outcome import Outcome
from torchctl.controllers.job.attempts.stage import Ended, Life, Run, Settle, Suspended, Wait, is_suspended
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.findings import Found, findings
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import dependencies, workers, workspace
from torchctl.controllers.job.steps.syncing import Syncing
from torchctl.controllers.job.template.freezing import freeze
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import key_of

__all__ = [
    "REFUSAL_REQUEUE_S",
    "WORKERS_REQUEUE_S",
    "Idle",
    "Plan",
    "Question",
    "Recovery",
    "Steps",
    "again_s",
    "plan",
]

REFUSAL_REQUEUE_S = 60.0
"""Seconds until a refused child is tried again, because quotas and policies change without telling us."""
GANG_REQUEUE_S = 30.0
"""Seconds until the next look for a gang scheduler that the cluster does not have, or keeps from us."""
WORKERS_REQUEUE_S = 10.0
"""Seconds until workers are read again that the cache does not have. It may never have them, if they go before it does,
and then it tells of no change."""


class Question(Enum):
    """Questions of a plan that need a live read."""

    WHY_NO_PODS = auto()
    """The reason why the Job controller cannot create the workers: only its Events have it."""
    WHY_NOT_UP = auto()
    """The newest Warning Event about the first late worker, which may say more than the pod's status."""
    WORKER_JOB = auto()
    """Whether the attempt's Job is gone, which is the end of its job for ever; the cache may only not have it yet."""
    REVISION = auto()
    """The revision that status names: the plan would record another, and the cache may only not have it yet."""
    WORKERS = auto()
    """The workers, those of earlier attempts too: the next attempt is about to begin because none of them runs, or a
    Job has failed, or is about to go, and none of them says why. The cache may only not have them yet, because a watch
    that dies in silence is noticed after a minute."""
    JOB = auto()
    """Whether the job is still there: what was made before its workers is gone, as the garbage collector leaves it, and
    the cache may only not know yet that the job was deleted."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The plan for a job that is being deleted or has ended.

    Args:
        asks: What has to be read live before this plan is believed.
    """

    actions: Actions = field(default_factory=Actions)
    asks: Question | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """The plan for a job whose status is behind its children: it is written first, and the next pass goes by it."""

    status: JobStatus
    actions: Actions = field(default_factory=Actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The plan for a job that goes on, and what each step found.

    Args:
        findings: One for each condition.
        revision: The name of the template that status should have; empty if the next attempt takes another.
        template: What the job runs with; None if it has none yet, or if nobody can read it any more.
        workspace: What status should say of the workspace.
        asks: What has to be read live before this plan is believed.
    """

    life: Life
    findings: Mapping[JobCondition, Finding]
    revision: str
    template: FrozenTemplate | None
    workspace: WorkspaceStatus | None
    actions: Actions = field(default_factory=Actions)
    asks: Question | None = None


Plan = Idle | Recovery | Steps


def again_s(todo: Plan, refusals: Sequence[Refusal]) -> float | None:
    """Returns seconds until the plan's next look, or until refused children are tried again if that is earlier."""
    return earliest(todo.actions.look_again_s, REFUSAL_REQUEUE_S if refusals else None)


def plan(observed: Observed, settings: OperatorSettings, now: datetime) -> Plan:
    """Decides the next step of a job.

    Args:
        now: The time, aware of its zone.
    """
    job = observed.job
    if job.metadata.deletion_timestamp is not None:
        return Idle()
    frozen = freeze(observed, settings)
    if job.status.phase in TERMINAL:
        return _idle(Case(observed, frozen.template, settings.restarting, now))
    known = recovery.recovered(observed, now)
    if known is not None:
        return Recovery(known)
    needs = dependencies.assess(job, observed.upstream)
    if not needs.ok:
        # Frozen when it is let through: status then names the revision and says DependenciesMet in one write.
        frozen = replace(frozen, template=None, revision=job.status.queue_revision)
    case = Case(observed, frozen.template, settings.restarting, now)
    state = workspace.assess(observed, frozen.template, now) if frozen.template else None
    found = Found(case, frozen, needs, state, coordinator=settings.coordinator is not None)
    life = lifecycle.advance(case, _hopeless(needs, state))
    actions = _actions(found, life)
    missed = _goes_by_missing_workers(case, life, actions)
    if observed.workers_read and not missed:
        actions = replace(actions, look_again_s=earliest(actions.look_again_s, WORKERS_REQUEUE_S))
    return Steps(
        life=life,
        findings=findings(found, life),
        revision=_revision(found, life),
        template=frozen.template,
        workspace=state.report if state else job.status.workspace,
        actions=actions,
        asks=_asks(found, life, missed=missed),
    )


def _idle(case: Case) -> Idle:
    actions = retention.after_the_end(case)
    missed = not case.observed.workers_read and retention.drops_last(case, actions.remove)
    return Idle(actions, Question.WORKERS if missed else None)


def _hopeless(needs: Finding, state: Syncing | None) -> Outcome | None:
    """Returns the end of a job whose workers can never start, or None."""
    if needs.reason == JobReason.DEPENDENCY_FAILED:
        return Outcome(needs.reason, needs.message, Failure(reason=needs.reason, message=needs.message))
    if state is not None and state.failure is not None:
        return Outcome(state.reason, state.finding.message, state.failure)
    return None


def _revision(found: Found, life: Life) -> str:
    """Returns the template's name, unless the next attempt was just given another one that can be made."""
    forgotten = found.case.status.queue_revision and not life.status.queue_revision
    return "" if forgotten and not found.frozen.stays else found.frozen.revision


def _actions(found: Found, life: Life) -> Actions:
    case, frozen, state = found.case, found.frozen, found.syncing
    if case.template is None or state is None:
        waits_for_gangs = frozen.accepted.reason == JobReason.POD_GROUPS_REFUSED
        return Actions(look_again_s=earliest(life.look_again_s, GANG_REQUEUE_S if waits_for_gangs else None))
    if life.outcome is not None:
        return Actions()
    look_again_s = _look_again_s(case, life, state)
    if not found.dependencies.ok or not _is_written(found, life):
        return Actions(look_again_s=look_again_s)
    return Actions(
        remove=(*retention.leftovers(case), *_of_other_revisions(state)),
        halt=(*retention.halted(case), *state.halt),
        pause=retention.pauses(case, isinstance(life.stage, Suspended)),
        children=children(Ground(case, case.template, frozen.revision, frozen.hold, state), life.stage),
        look_again_s=look_again_s,
    )


def _of_other_revisions(state: Syncing) -> tuple[Removal, ...]:
    """Sync pods that would write, or serve, another revision of the workspace."""
    return tuple(Removal(POD, key_of(pod), pod.metadata.uid) for pod in state.remove)


def _is_written(found: Found, life: Life) -> bool:
    """Whether status says already what was decided, and names the template.

    A crash after the first child then cannot make two of anything. Between attempts nothing is made.
    """
    status = found.case.status
    decided = life.status == status and isinstance(life.stage, Suspended) == is_suspended(status)
    return decided and (isinstance(life.stage, Settle | Wait) or status.queue_revision == found.frozen.revision)


def _look_again_s(case: Case, life: Life, state: Syncing) -> float | None:
    template, runs = case.template, isinstance(life.stage, Run)
    waits_for_gangs = template is not None and case.observed.lacks(template.gang_scheduler)
    return earliest(
        life.look_again_s,
        state.look_again_s,
        retention.look_again_s(case),
        workers.look_again_s(case.observed, template, case.now) if runs and template is not None else None,
        delays.look_again_s(case.observed, case.now) if runs else None,
        GANG_REQUEUE_S if waits_for_gangs else None,
    )


def _asks(found: Found, life: Life, *, missed: bool) -> Question | None:
    case = found.case
    if life.outcome is not None and life.outcome.reason == JobReason.JOB_DISAPPEARED:
        return Question.WORKER_JOB
    if missed and not case.observed.workers_read:
        return Question.WORKERS
    if found.frozen.renamed:
        return Question.REVISION
    if case.template is None or not isinstance(life.stage, Run) or case.observed.worker_job is None:
        return None
    if _is_bereft(case.observed, case.template):
        return Question.JOB
    if workers.are_overdue(case.observed, case.template, case.now):
        return Question.WHY_NO_PODS
    late = delays.first_late(case.observed, case.now)
    return Question.WHY_NOT_UP if late is not None and delays.has_news(late) else None


def _goes_by_missing_workers(case: Case, life: Life, actions: Actions) -> bool:
    """Whether something is done for ever because there is no worker that runs, or none that says why it failed."""
    status = case.status
    if retention.drops_last(case, actions.remove):
        return True
    match life.stage:
        case Wait():
            return status.next_attempt_time is not None and life.status.next_attempt_time is None
        case Settle(incident):
            return status.incident is None and incident.cause == Cause.VANISHED
        case Ended(outcome):
            return outcome.reason == JobReason.STATUS_LOST
    return False


def _is_bereft(observed: Observed, template: FrozenTemplate) -> bool:
    """Whether something is gone that was made before the workers' Job, which is there."""
    grouped = template.pod_groups is not None and observed.makes_group(template.pod_groups)
    return None in (observed.revision, observed.service, *((observed.podgroup,) if grouped else ()))
