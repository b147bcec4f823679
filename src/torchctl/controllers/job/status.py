"""The status of a job: conditions from what each step found, the phase from the conditions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from torchctl.api import names
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import JobStatus, NodeCounts, WorkerCounts
from torchctl.api.kube import JOB, POD, PVC, SERVICE
from torchctl.api.labels import ROLE_WORKER, selector
from torchctl.api.phases import TERMINAL, Phase
from torchctl.controllers.finding import Finding, Refusal
from torchctl.controllers.gangs.groups import GROUP_KINDS
from torchctl.controllers.job import pods
from torchctl.controllers.job.attempts.outcome import Outcome
from torchctl.controllers.job.attempts.stage import Run
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.torchrun import rendezvous
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.plan import Idle, Plan, Recovery, Steps
from torchctl.controllers.job.steps import workers
from torchctl.controllers.job.template.field_origin import told
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
    if isinstance(plan, Idle):
        ended = old.phase in TERMINAL
        return msgspec.structs.replace(old, observed_generation=job.metadata.generation) if ended else old
    if isinstance(plan, Recovery):
        return plan.status
    findings = _steady(_with_refusals(plan.findings, refusals, observed), old)
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
        plan.life.status,
        phase=phase_of(conditions),
        conditions=conditions,
        observed_generation=job.metadata.generation,
        queue_revision=plan.revision,
    )
    if plan.template is not None:
        status = _with_template(status, observed, plan, plan.template)
    elif observed.was_started or status.workers_status:
        status = _with_counts(status, observed, plan, status.nodes.desired)
    elif not status.nodes.desired:
        status = msgspec.structs.replace(status, nodes=NodeCounts(desired=job.spec.num_nodes or 0))
    return _with_times(status, observed, now) if isinstance(plan.life.stage, Run) else status


def phase_of(conditions: Iterable[Condition]) -> Phase:
    """Returns the phase that sums up all conditions; the last step that was reached decides."""
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


def _steady(findings: dict[JobCondition, Finding], old: JobStatus) -> dict[JobCondition, Finding]:
    """The first words about an image that cannot be pulled: the kubelet has others each time that it tries or waits."""
    kept = dict(findings)
    for type_, found in findings.items():
        known = find(old.conditions, type_)
        same = known is not None and known.reason == found.reason == JobReason.IMAGE_PULL_BACK_OFF
        if same and known is not None and known.message.partition(": ")[0] == found.message.partition(": ")[0]:
            kept[type_] = replace(found, message=known.message)
    return kept


def _with_refusals(
    findings: Mapping[JobCondition, Finding], refusals: Sequence[Refusal], observed: Observed
) -> dict[JobCondition, Finding]:
    """Puts each refusal into the condition of the step that it stops; the first counts if a step has several.

    Workers that are ready stay so, even if a change for them is refused.
    """
    found = dict(findings)
    for refusal in reversed([one for one in refusals if not one.stays]):
        type_ = _step_of(refusal, observed.job.metadata.name)
        if type_ in (JobCondition.WORKSPACE_READY, JobCondition.ADMITTED) and findings[type_].ok:
            continue  # the workspace is there, or the gang is placed, all the same
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
        **{kind.kind: JobCondition.ADMITTED for kind in GROUP_KINDS},
        JOB.kind: JobCondition.WORKERS_READY,
    }.get(refusal.kind, JobCondition.ACCEPTED)


def _with_template(status: JobStatus, observed: Observed, plan: Steps, template: FrozenTemplate) -> JobStatus:
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
        workspace=plan.workspace,
    )


def _with_counts(status: JobStatus, observed: Observed, plan: Steps, nodes: int) -> JobStatus:
    counts = _in_the_end(observed, nodes, plan.life.outcome)
    return msgspec.structs.replace(
        status,
        nodes=NodeCounts(desired=nodes, ready=counts.ready),
        workers=counts,
        workers_status=_in_short(counts, nodes, plan.life.outcome),
    )


def _in_the_end(observed: Observed, nodes: int, end: Outcome | None) -> WorkerCounts:
    """Counts the workers of an ended job, of which none runs; those of a failed one are being stopped.

    Nobody counts them again. In a job that has succeeded a worker has succeeded unless it is seen to have failed by
    itself: its end may be seen later than the Job's, or its pod may be gone already.
    """
    counts = workers.count(observed)
    if end is None:
        return counts
    if end.failure is not None:
        return WorkerCounts(succeeded=counts.succeeded, failed=counts.failed)
    failed = sum(pods.failed(pod) and not pods.told_to_stop(pod) for pod in observed.pods)
    return WorkerCounts(succeeded=max(nodes - failed, 0), failed=failed)


def _in_short(counts: WorkerCounts, nodes: int, end: Outcome | None) -> str:
    """Returns the workers as a column shows them: how many run, and in the end how many succeeded or failed."""
    if end is not None and end.failure is None:
        return f"{nodes}/{nodes} succeeded"
    if end is not None and counts.failed:
        return f"{counts.failed}/{nodes} failed"
    return f"{counts.running}/{nodes} running"


def _with_times(status: JobStatus, observed: Observed, now: datetime) -> JobStatus:
    """Records in status when the attempt started, was placed and was ready, and its worker 0.

    Before its Job is seen none of these is known; a known one stays. From the start on, a Job that is not there is
    missing.
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
        host_uid=status.host_uid or (_host(observed) if ready else ""),
    )


def _host(observed: Observed) -> str:
    """The uid of an elastic job's worker 0, at which the others meet."""
    hosts = (pod.metadata.uid for pod in observed.pods if pods.index(pod) == 0)
    return next(hosts, "") if observed.job.spec.elastic is not None else ""
