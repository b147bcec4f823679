"""The status of a job: conditions from what each step found, the phase from the conditions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from torchctl.api import names
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import JobStatus, NodeCounts, WorkerCounts
from torchctl.api.kube import JOB, KAI_PODGROUP, POD, PVC, SERVICE
from torchctl.api.labels import ROLE_WORKER, selector
from torchctl.api.phases import TERMINAL, Phase
from torchctl.controllers.job import pods
from torchctl.controllers.job.actions import Refusal
from torchctl.controllers.job.attempts.lifecycle import Life, Stage
from torchctl.controllers.job.attempts.outcome import Outcome
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.torchrun import rendezvous
from torchctl.controllers.job.failure.verdict import sentence
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.plan import Plan
from torchctl.controllers.job.steps import workers
from torchctl.controllers.job.steps.finding import Finding
from torchctl.controllers.job.steps.workspace import missing_claim
from torchctl.controllers.job.template.field_origin import told
from torchctl.controllers.job.template.freezing import Frozen
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.job.transitions import transitions
from torchctl.runtime.conditions import carry_over, find, is_true
from torchctl.runtime.kinds import Condition

__all__ = ["derive", "phase_of", "transitions"]


def derive(observed: Observed, plan: Plan, refusals: Sequence[Refusal], now: datetime) -> JobStatus:
    """The status after a pass that carried `plan` out, save for what was refused.

    A job that ended keeps its status for ever.
    """
    job, old = observed.job, observed.job.status
    if plan.idle or plan.frozen is None or plan.life is None:
        ended = old.phase in TERMINAL
        return msgspec.structs.replace(old, observed_generation=job.metadata.generation) if ended else old
    findings = _steady(_with_refusals(_findings(observed, plan), refusals, observed), old)
    conditions = carry_over(
        old.conditions,
        (
            Condition(
                type_,
                "True" if found.ok else "False",
                found.reason,
                found.message,
                observed_generation=job.metadata.generation,
            )
            for type_, found in findings.items()
        ),
        now,
    )
    life = plan.life
    status = msgspec.structs.replace(
        life.status,
        phase=phase_of(conditions),
        conditions=conditions,
        observed_generation=job.metadata.generation,
        queue_revision=_revision(observed, plan.frozen, life),
    )
    if plan.template is not None:
        status = _with_template(status, observed, plan, plan.template)
    elif observed.was_started or status.workers_status:
        status = _with_counts(status, observed, plan, status.nodes.desired)
    elif not status.nodes.desired:
        status = msgspec.structs.replace(status, nodes=NodeCounts(desired=job.spec.num_nodes or 0))
    return _with_times(status, observed, now) if life.stage is Stage.RUN and life.outcome is None else status


def _revision(observed: Observed, frozen: Frozen, life: Life) -> str:
    """The template's name, unless it was just decided that the next attempt takes another one."""
    forgotten = observed.job.status.queue_revision and not life.status.queue_revision
    return "" if forgotten else frozen.revision


def phase_of(conditions: Iterable[Condition]) -> Phase:
    """One word for all conditions; the last step that was reached decides."""
    by_type = {condition.type: condition for condition in conditions}

    def true(type_: JobCondition) -> bool:
        return by_type[type_].status == "True"

    for type_, phase in (
        (JobCondition.FAILED, Phase.FAILED),
        (JobCondition.COMPLETE, Phase.SUCCEEDED),
        (JobCondition.SUSPENDED, Phase.SUSPENDED),
        (JobCondition.WORKERS_READY, Phase.RUNNING),
    ):
        if true(type_):
            return phase
    if by_type[JobCondition.WORKERS_READY].reason in (JobReason.INCIDENT, JobReason.RESTARTING):
        return Phase.RESTARTING
    if by_type[JobCondition.WORKSPACE_READY].reason == JobReason.NOT_STARTED:
        return Phase.PENDING
    if by_type[JobCondition.WORKERS_READY].reason != JobReason.NOT_STARTED:
        return Phase.STARTING if true(JobCondition.ADMITTED) else Phase.QUEUED
    if not true(JobCondition.WORKSPACE_READY):
        return Phase.SYNCING
    return Phase.STARTING if true(JobCondition.ADMITTED) else Phase.QUEUED


def _findings(observed: Observed, plan: Plan) -> dict[JobCondition, Finding]:
    frozen, life = plan.frozen, plan.life
    assert frozen is not None
    assert life is not None
    end, waits = plan.outcome, Finding(False, JobReason.NOT_STARTED, _waits_for(plan))

    def else_(type_: JobCondition) -> Finding:
        """What was known of a step, of a job that runs on without a template; else what the step waits for."""
        known = find(observed.job.status.conditions, type_) if observed.job.status.start_time else None
        return Finding(known.status == "True", known.reason, known.message) if known else waits

    needs = plan.dependencies or else_(JobCondition.DEPENDENCIES_MET)
    return {
        JobCondition.ACCEPTED: frozen.accepted,
        JobCondition.QUEUE_FOUND: frozen.queue_found,
        JobCondition.DEPENDENCIES_MET: needs,
        JobCondition.WORKSPACE_READY: _workspace(plan, needs, waits) or else_(JobCondition.WORKSPACE_READY),
        JobCondition.ADMITTED: _admitted(plan, waits) or else_(JobCondition.ADMITTED),
        JobCondition.WORKERS_READY: _workers(plan)
        or (else_(JobCondition.WORKERS_READY) if observed.was_started else waits),
        JobCondition.SUSPENDED: _suspended(life, end),
        JobCondition.COMPLETE: _complete(end),
        JobCondition.FAILED: _failed(end),
    }


def _workspace(plan: Plan, needs: Finding, waits: Finding) -> Finding | None:
    frozen = plan.frozen
    assert frozen is not None
    if frozen.missing_claim:
        return missing_claim(frozen.missing_claim)
    if plan.syncing is None:
        return None
    return plan.syncing.finding if needs.ok or plan.syncing.finding.ok else waits


def _admitted(plan: Plan, waits: Finding) -> Finding | None:
    """An attempt that has ended takes its admission with it; who has ended keeps what was known."""
    assert plan.life is not None
    between = plan.life.outcome is None and plan.life.stage in (Stage.WAIT, Stage.SUSPENDED)
    return waits if between else plan.admission


def _workers(plan: Plan) -> Finding | None:
    life = plan.life
    assert life is not None
    if life.outcome is not None:
        return Finding(False, JobReason.FINISHED, "the job has ended")
    if life.stage is Stage.SUSPENDED:
        return Finding(False, JobReason.SUSPENDED, "the job is suspended: set spec.suspend to false to go on")
    if life.stage is Stage.SETTLE:
        lost = sentence(life.status.failure) if life.status.failure else "a worker was lost"
        return Finding(False, JobReason.INCIDENT, f"{lost}; waits for what else is lost with it", warn=True)
    if life.stage is Stage.WAIT:
        return Finding(False, JobReason.RESTARTING, _next_attempt(life.status))
    return plan.workers


def _next_attempt(status: JobStatus) -> str:
    """The same words for as long as it is waited for: times of the clock, and no number that moves."""
    due = status.next_attempt_time
    after = f" after {due.strftime('%H:%M:%S')} UTC, once no pod of an earlier attempt runs" if due is not None else ""
    return f"attempt {status.attempt} begins{after}"


def _suspended(life: Life, end: Outcome | None) -> Finding:
    if life.stage is Stage.SUSPENDED and end is None:
        return Finding(True, JobReason.SUSPENDED, "spec.suspend is true: no worker runs until it is false")
    return Finding(False, JobReason.NOT_SUSPENDED, "the job is not suspended")


def _steady(findings: dict[JobCondition, Finding], old: JobStatus) -> dict[JobCondition, Finding]:
    """The first words about an image that cannot be pulled: the kubelet has others each time that it tries or waits."""
    kept = dict(findings)
    for type_, found in findings.items():
        known = find(old.conditions, type_)
        same = known is not None and known.reason == found.reason == JobReason.IMAGE_PULL_BACK_OFF
        if same and known is not None and known.message.partition(": ")[0] == found.message.partition(": ")[0]:
            kept[type_] = replace(found, message=known.message)
    return kept


def _waits_for(plan: Plan) -> str:
    frozen, needs = plan.frozen, plan.dependencies
    assert frozen is not None
    if not frozen.accepted.ok:
        return "waits for the spec to be accepted"
    if not frozen.queue_found.ok:
        return "waits for the queue"
    if needs is not None and not needs.ok:
        return "waits for the jobs that it depends on"
    return f"waits for PersistentVolumeClaim {frozen.missing_claim}" if frozen.missing_claim else "waits for its turn"


def _complete(end: Outcome | None) -> Finding:
    if end is None:
        return Finding(False, JobReason.NOT_ENDED, "the job has not ended")
    if end.failure is None:
        return Finding(True, end.reason, end.message)
    return Finding(False, end.reason, "the job failed")


def _failed(end: Outcome | None) -> Finding:
    if end is None:
        return Finding(False, JobReason.NOT_ENDED, "nothing has failed")
    if end.failure is None:
        return Finding(False, end.reason, "nothing has failed")
    return Finding(True, end.reason, end.message, warn=True)


def _with_refusals(
    findings: dict[JobCondition, Finding], refusals: Sequence[Refusal], observed: Observed
) -> dict[JobCondition, Finding]:
    """Each refusal in the condition of the step that it stops; of several in one step the first counts.

    Workers that are ready stay so, whatever of a change for them is refused.
    """
    found = dict(findings)
    for refusal in reversed([one for one in refusals if not one.stays]):
        type_ = _step_of(refusal, observed.job.metadata.name)
        if type_ is JobCondition.WORKSPACE_READY and findings[type_].ok:
            continue  # the workspace is there all the same
        said = told(refusal, observed)
        message = said if refusal.name in said else f"{refusal.kind} {refusal.name}: {said}"
        ready = type_ is JobCondition.WORKERS_READY and findings[type_].ok
        found[type_] = Finding(ready, refusal.reason, message, warn=True)
    return found


def _step_of(refusal: Refusal, job: str) -> JobCondition:
    own_name = (refusal.kind, refusal.name)
    if own_name in ((PVC.kind, names.checkpoints_claim(job)), (SERVICE.kind, names.service(job))):
        return JobCondition.WORKERS_READY
    return {
        PVC.kind: JobCondition.WORKSPACE_READY,
        SERVICE.kind: JobCondition.WORKSPACE_READY,
        POD.kind: JobCondition.WORKSPACE_READY,
        KAI_PODGROUP.kind: JobCondition.ADMITTED,
        JOB.kind: JobCondition.WORKERS_READY,
    }.get(refusal.kind, JobCondition.ACCEPTED)


def _with_template(status: JobStatus, observed: Observed, plan: Plan, template: FrozenTemplate) -> JobStatus:
    job, owner = observed.job, Owner.of(observed.job)
    meeting = rendezvous(template, owner.name, owner.namespace, owner.uid, status.attempt)
    nodes = template.desired(job.spec)
    return msgspec.structs.replace(
        _with_counts(status, observed, plan, nodes),
        job_id=job.metadata.uid,
        gpus=nodes * template.gpus_per_node,
        selector=selector(owner.selector(ROLE_WORKER)),
        master_endpoint=meeting.endpoint,
        rendezvous_id=meeting.id,
        workspace=plan.syncing.report if plan.syncing else status.workspace,
    )


def _with_counts(status: JobStatus, observed: Observed, plan: Plan, nodes: int) -> JobStatus:
    counts = _in_the_end(observed, plan.outcome)
    return msgspec.structs.replace(
        status,
        nodes=NodeCounts(desired=nodes, ready=counts.ready),
        workers=counts,
        workers_status=_in_short(counts, nodes, plan.outcome),
    )


def _in_the_end(observed: Observed, end: Outcome | None) -> WorkerCounts:
    """Of a job that has ended no worker runs, and nobody counts again: those of one that failed are being stopped.

    That a Job is complete can be heard before the last of its workers' ends. One that was stopped because worker 0 had
    succeeded has not failed.
    """
    counts = workers.count(observed)
    if end is None:
        return counts
    if end.failure is not None:
        return WorkerCounts(succeeded=counts.succeeded, failed=counts.failed)
    failed = sum(pods.failed(pod) and not pods.told_to_stop(pod) for pod in observed.pods)
    return WorkerCounts(succeeded=counts.succeeded + counts.running + counts.pending, failed=failed)


def _in_short(counts: WorkerCounts, nodes: int, end: Outcome | None) -> str:
    """The workers as a column shows them: who runs, and in the end who succeeded or failed."""
    if end is not None and end.failure is None:
        return f"{nodes}/{nodes} succeeded"
    if end is not None and counts.failed:
        return f"{counts.failed}/{nodes} failed"
    return f"{counts.running}/{nodes} running"


def _with_times(status: JobStatus, observed: Observed, now: datetime) -> JobStatus:
    """What was seen of the attempt: its Job (which from then on is missed where it is not), its workers.

    Before the Job was seen nothing of this is known; what is known once stays.
    """
    child, moment = observed.worker_job, now.replace(microsecond=0)
    start = status.attempt_start_time or (child.metadata.creation_timestamp if child is not None else None)
    placed = start is not None and is_true(status.conditions, JobCondition.ADMITTED)
    ready = start is not None and is_true(status.conditions, JobCondition.WORKERS_READY)
    return msgspec.structs.replace(
        status,
        start_time=status.start_time or start,
        attempt_start_time=start,
        attempt_active_time=status.attempt_active_time or (moment if placed else None),
        attempt_ready_time=status.attempt_ready_time or (moment if ready else None),
    )
