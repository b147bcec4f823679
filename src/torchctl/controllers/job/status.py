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
from torchctl.controllers.job import workers
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.torchrun import rendezvous
from torchctl.controllers.job.finding import Finding
from torchctl.controllers.job.frozen import FrozenTemplate
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.outcome import Outcome
from torchctl.controllers.job.plan import Plan, Refusal
from torchctl.controllers.job.syncing import missing_claim
from torchctl.controllers.job.transitions import transitions
from torchctl.runtime.conditions import carry_over, find
from torchctl.runtime.kinds import Condition

__all__ = ["derive", "phase_of", "transitions"]


def derive(observed: Observed, plan: Plan, refusals: Sequence[Refusal], now: datetime) -> JobStatus:
    """The status after a pass that carried `plan` out, save for what was refused.

    A job that ended keeps its status for ever.
    """
    job, old = observed.job, observed.job.status
    if plan.idle or plan.frozen is None:
        ended = old.phase in TERMINAL
        return msgspec.structs.replace(old, observed_generation=job.metadata.generation) if ended else old
    findings = _steady(_with_refusals(_findings(observed, plan), refusals, job.metadata.name), old)
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
    status = msgspec.structs.replace(
        old,
        phase=phase_of(conditions),
        conditions=conditions,
        observed_generation=job.metadata.generation,
        queue_revision=plan.frozen.revision,
    )
    if plan.template is not None:
        status = _with_template(status, observed, plan, plan.template)
    elif not status.nodes.desired:
        status = msgspec.structs.replace(status, nodes=NodeCounts(desired=job.spec.num_nodes or 0))
    return _with_times(status, observed, plan.outcome, now)


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
    if by_type[JobCondition.WORKSPACE_READY].reason == JobReason.NOT_STARTED:
        return Phase.PENDING
    if by_type[JobCondition.WORKERS_READY].reason != JobReason.NOT_STARTED:
        return Phase.STARTING if true(JobCondition.ADMITTED) else Phase.QUEUED
    if not true(JobCondition.WORKSPACE_READY):
        return Phase.SYNCING
    return Phase.STARTING if true(JobCondition.ADMITTED) else Phase.QUEUED


def _findings(observed: Observed, plan: Plan) -> dict[JobCondition, Finding]:
    frozen, end = plan.frozen, plan.outcome
    assert frozen is not None
    waits = Finding(False, JobReason.NOT_STARTED, _waits_for(plan))

    def else_(type_: JobCondition) -> Finding:
        """What was known of a step, of a job that runs on without a template; else what the step waits for."""
        known = find(observed.job.status.conditions, type_) if observed.job.status.start_time else None
        return Finding(known.status == "True", known.reason, known.message) if known else waits

    workspace = missing_claim(frozen.missing_claim) if frozen.missing_claim else else_(JobCondition.WORKSPACE_READY)
    return {
        JobCondition.ACCEPTED: frozen.accepted,
        JobCondition.QUEUE_FOUND: frozen.queue_found,
        JobCondition.WORKSPACE_READY: plan.syncing.finding if plan.syncing else workspace,
        JobCondition.ADMITTED: plan.admission or else_(JobCondition.ADMITTED),
        JobCondition.WORKERS_READY: plan.workers or else_(JobCondition.WORKERS_READY),
        JobCondition.SUSPENDED: Finding(False, JobReason.NOT_SUSPENDED, "the job is not suspended"),
        JobCondition.COMPLETE: _complete(end),
        JobCondition.FAILED: _failed(end),
    }


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
    frozen = plan.frozen
    assert frozen is not None
    if not frozen.accepted.ok:
        return "waits for the spec to be accepted"
    if not frozen.queue_found.ok:
        return "waits for the queue"
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
    findings: dict[JobCondition, Finding], refusals: Sequence[Refusal], job: str
) -> dict[JobCondition, Finding]:
    """Each refusal in the condition of the step that it stops; of several in one step the first counts."""
    found = dict(findings)
    for refusal in reversed(refusals):
        type_ = _step_of(refusal, job)
        if type_ is JobCondition.WORKSPACE_READY and findings[type_].ok:
            continue  # the workspace is there all the same
        said = refusal.message
        message = said if refusal.name in said else f"{refusal.kind} {refusal.name}: {said}"
        found[type_] = Finding(False, refusal.reason, message, warn=True)
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
    counts = workers.count(observed)
    return msgspec.structs.replace(
        status,
        job_id=job.metadata.uid,
        nodes=NodeCounts(desired=template.nodes, ready=counts.ready),
        gpus=template.gpus,
        workers=counts,
        workers_status=_in_short(counts, template.nodes, plan.outcome),
        selector=selector(owner.selector(ROLE_WORKER)),
        master_endpoint=meeting.endpoint,
        rendezvous_id=meeting.id,
        workspace=plan.syncing.report if plan.syncing else status.workspace,
    )


def _in_short(counts: WorkerCounts, nodes: int, end: Outcome | None) -> str:
    """The workers as a column shows them: who runs, and in the end who succeeded or failed."""
    if end is not None and end.failure is None:
        return f"{nodes}/{nodes} succeeded"
    if end is not None and counts.failed:
        return f"{counts.failed}/{nodes} failed"
    return f"{counts.running}/{nodes} running"


def _with_times(status: JobStatus, observed: Observed, end: Outcome | None, now: datetime) -> JobStatus:
    """startTime once the child Job was seen: from then on a Job that is gone is a failure, and never made again."""
    child = observed.worker_job
    start = status.start_time or (child.metadata.creation_timestamp if child is not None else None)
    if end is None:
        return msgspec.structs.replace(status, start_time=start)
    done = (child.status.completion_time if child is not None else None) or now.replace(microsecond=0)
    active = max(0, int((done - start).total_seconds())) if start is not None else 0
    return msgspec.structs.replace(
        status, start_time=start, completion_time=done, active_seconds=active, failure=end.failure
    )
