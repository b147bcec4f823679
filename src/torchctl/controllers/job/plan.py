"""What should exist for a job right now: a pure function of what was observed.

How the reconciler uses it (the interface besides `Observed`):

- `plan.children` are applied in order, and the first refusal stops the rest of them: a later child is of no use
  without the earlier. `child.ours` recognises our own object under the child's name.
- What is decided for ever is written to status first, and acted upon by the next pass: the name of the template
  (`status.queueRevision`) and everything in `plan.life` (attempt, incident, suspension, outcome). Such a pass has
  neither children nor removals.
- `plan.remove` is deleted by uid, before the children are applied; pods of `plan.halt` get their deadline after that.
- `plan.idle` says that the job is being deleted or has ended: status stays as it is.
- Where `plan.asks_why` is true, the reconciler reads the newest Event `FailedCreate` of the child Job and puts its
  message into `Observed.create_failure`: only there is written why pods were refused.
- Where `plan.misses_job` is true, it reads the child Job itself and plans again: that a Job is gone is the end of its
  job for ever, and the cache may only not have it yet.
- Where `plan.misses_revision` is true, it reads the revision that status names, and plans again: the plan would record
  another template, and the cache may only not have yet what froze the job.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from torchctl.api.conditions import JobReason
from torchctl.api.job import Failure
from torchctl.api.kube import POD
from torchctl.api.phases import TERMINAL
from torchctl.controllers.job.actions import Child, Halt, Refusal, Removal
from torchctl.controllers.job.attempts import lifecycle, stuck
from torchctl.controllers.job.attempts import retention as ending
from torchctl.controllers.job.attempts.lifecycle import Life, Stage
from torchctl.controllers.job.attempts.outcome import Outcome
from torchctl.controllers.job.children import intended
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import admission, dependencies
from torchctl.controllers.job.steps import workers as worker_pods
from torchctl.controllers.job.steps import workspace as syncing
from torchctl.controllers.job.steps.finding import Finding
from torchctl.controllers.job.steps.workspace import Syncing
from torchctl.controllers.job.template.freezing import Frozen, freeze
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import key_of

__all__ = ["REFUSAL_REQUEUE_S", "Child", "Halt", "Plan", "Refusal", "Removal", "plan"]

REFUSAL_REQUEUE_S = 60.0
"""When a refused child is tried again: quotas and policies change without telling us."""
KAI_REQUEUE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What should exist, what must go, when to look again; and what each step found, for status."""

    children: tuple[Child, ...] = ()
    remove: tuple[Removal, ...] = ()
    halt: tuple[Halt, ...] = ()
    requeue_after_s: float | None = None
    idle: bool = False
    frozen: Frozen | None = None
    syncing: Syncing | None = None
    admission: Finding | None = None
    workers: Finding | None = None
    life: Life | None = None
    dependencies: Finding | None = None
    asks_why: bool = False

    @property
    def outcome(self) -> Outcome | None:
        return self.life.outcome if self.life else None

    def again_s(self, refusals: Sequence[Refusal]) -> float | None:
        """Seconds until the next look: what was refused is tried again, and what was due is due all the same."""
        moments = (self.requeue_after_s, REFUSAL_REQUEUE_S if refusals else None)
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def misses_job(self) -> bool:
        return self.outcome is not None and self.outcome.reason == JobReason.JOB_DISAPPEARED

    @property
    def misses_revision(self) -> bool:
        return self.frozen is not None and self.frozen.renamed

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
        estate = ending.after_the_end(observed, frozen.template, now)
        return Plan(
            idle=True,
            children=estate.children,
            remove=estate.remove,
            halt=estate.halt,
            requeue_after_s=estate.look_again_s,
        )
    needs = dependencies.assess(job, observed.upstream)
    if not needs.ok:
        # Frozen when it is let through: status then names the revision and says DependenciesMet in one write.
        frozen = replace(frozen, template=None, revision=job.status.queue_revision)
    template = frozen.template
    state = syncing.assess(observed, template, now) if template else None
    life = lifecycle.advance(observed, template, _hopeless(needs, state), settings.restarting, now)
    found = Plan(frozen=frozen, life=life, dependencies=needs, syncing=state, requeue_after_s=life.look_again_s)
    if template is None or state is None:
        return found
    return _with_template(found, observed, template, state, settings, now)


def _with_template(
    found: Plan, observed: Observed, template: FrozenTemplate, state: Syncing, settings: OperatorSettings, now: datetime
) -> Plan:
    life, frozen = found.life, found.frozen
    assert life is not None
    assert frozen is not None
    runs = life.stage is Stage.RUN and life.outcome is None
    between = life.stage in (Stage.SETTLE, Stage.WAIT)  # nothing is made then
    written = _written(observed, life) and (between or _recorded(observed, frozen))
    held = any(map(stuck.is_held, stuck.workers(observed, template, settings.restarting, now)))
    acts = written and life.outcome is None and found.dependencies is not None and found.dependencies.ok
    return replace(
        found,
        children=intended.children(observed, frozen, state, life.stage, lets_go=held) if acts else (),
        remove=(*ending.leftovers(observed, template, settings.restarting, now), *_history(state)) if acts else (),
        halt=(*ending.halted(observed, template, now), *state.halt) if acts else (),
        requeue_after_s=None if life.outcome else _requeue(found, observed, template, settings, now),
        admission=admission.assess(observed, template) if life.stage is Stage.RUN else None,
        workers=worker_pods.assess(observed, template, now) if runs else None,
        asks_why=runs and worker_pods.are_overdue(observed, template, now),
    )


def _hopeless(needs: Finding, state: Syncing | None) -> Outcome | None:
    """An end that comes before the workers do."""
    if needs.reason == JobReason.DEPENDENCY_FAILED:
        return Outcome(needs.reason, needs.message, Failure(reason=needs.reason, message=needs.message))
    if state is not None and state.failure is not None:
        return Outcome(state.reason, state.finding.message, state.failure)
    return None


def _history(state: Syncing) -> tuple[Removal, ...]:
    """Sync pods that would write, or serve, another revision of the workspace."""
    return tuple(Removal(POD, key_of(pod), pod.metadata.uid) for pod in state.remove)


def _written(observed: Observed, life: Life) -> bool:
    """Whether status says already what was decided."""
    status = observed.job.status
    return life.status == status and (life.stage is Stage.SUSPENDED) == lifecycle.is_suspended(status)


def _recorded(observed: Observed, frozen: Frozen) -> bool:
    """Whether status already names the template: a crash after the first child then cannot make two of anything."""
    return observed.job.status.queue_revision == frozen.revision


def _requeue(
    found: Plan, observed: Observed, template: FrozenTemplate, settings: OperatorSettings, now: datetime
) -> float | None:
    life, state = found.life, found.syncing
    assert life is not None
    assert state is not None
    moments = [life.look_again_s, state.look_again_s, ending.look_again_s(observed, template, settings.restarting, now)]
    if life.stage is Stage.RUN:
        moments.append(worker_pods.look_again_s(observed, template, now))
    moments.append(stuck.look_again_s(observed, template, settings.restarting, now))
    if template.kai is not None and not observed.kai_available:
        moments.append(KAI_REQUEUE_S)
    return min((moment for moment in moments if moment is not None), default=None)
