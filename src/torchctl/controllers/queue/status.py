"""The status of a TorchrunQueue, derived from what was observed. Pure."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from torchctl.api.conditions import QueueCondition, QueueReason
from torchctl.api.job import TorchrunJob
from torchctl.api.labels import QUEUE
from torchctl.api.phases import TERMINAL, Phase
from torchctl.api.queue import (
    GpuCounts,
    JobCounts,
    KaiQueueStatus,
    QueueStatus,
    TorchrunQueue,
)
from torchctl.controllers.queue.kai import QUEUE_NAMESPACE
from torchctl.controllers.queue.plan import Observed, Plan, Refusal, is_foreign, manages
from torchctl.runtime.conditions import carry_over
from torchctl.runtime.intent import digest_of
from torchctl.runtime.kinds import Condition

__all__ = ["counted_as", "derive", "transitions"]

Verdict = tuple[str, str, str]
"""A condition's status, reason and message."""


def derive(observed: Observed, plan: Plan, refusal: Refusal | None, now: datetime) -> QueueStatus:
    """The status after a reconcile that carried `plan` out, save for what was refused."""
    queue = observed.queue
    verdicts = {
        QueueCondition.ACCEPTED: _accepted(plan),
        QueueCondition.KAI_QUEUE_READY: _kai_queue_ready(observed, plan, refusal),
        QueueCondition.RESOURCES_READY: ("True", QueueReason.NO_RESOURCES, "the queue asks for no further objects"),
    }
    verdicts[QueueCondition.READY] = _ready(verdicts)
    conditions = tuple(
        Condition(type_, status, reason, message, observed_generation=queue.metadata.generation)
        for type_, (status, reason, message) in verdicts.items()
    )
    return QueueStatus(
        observed_generation=queue.metadata.generation,
        conditions=carry_over(queue.status.conditions, conditions, now),
        kai_queue=_kai_status(observed),
        jobs=_job_counts(observed.jobs),
        gpus=_gpu_counts(observed.jobs),
        template_hash=template_hash(queue),
    )


def template_hash(queue: TorchrunQueue) -> str:
    """Tells two states of the spec apart."""
    return digest_of(queue.spec.model_dump(mode="json", by_alias=True, exclude_unset=True))


def counted_as(phase: str) -> str:
    """Under which field of status.jobs a job in this phase counts."""
    return {
        Phase.SYNCING: "syncing",
        Phase.QUEUED: "queued",
        Phase.STARTING: "running",
        Phase.RUNNING: "running",
        Phase.RESTARTING: "running",
        Phase.SUSPENDED: "suspended",
        Phase.SUCCEEDED: "succeeded",
        Phase.FAILED: "failed",
    }.get(Phase(phase) if phase else Phase.PENDING, "pending")


def transitions(old: QueueStatus, new: QueueStatus) -> tuple[tuple[str, str, str], ...]:
    """The Events that go with a change of status: (type, reason, message), one for each condition that turned."""
    before = {condition.type: (condition.status, condition.reason) for condition in old.conditions}
    return tuple(
        ("Normal" if condition.status == "True" else "Warning", condition.reason, condition.message)
        for condition in new.conditions
        if before.get(condition.type) != (condition.status, condition.reason)
        and condition.type != QueueCondition.RESOURCES_READY
        and condition.reason not in (QueueReason.NO_KAI_QUEUE, QueueReason.NOT_READY)
    )


def _accepted(plan: Plan) -> Verdict:
    if plan.problem is not None:
        return ("False", *plan.problem)
    return "True", QueueReason.ACCEPTED, "the spec is valid"


def _kai_queue_ready(observed: Observed, plan: Plan, refusal: Refusal | None) -> Verdict:
    queue, name = observed.queue, observed.queue.spec.kai_queue
    if name is None:
        return "True", QueueReason.NO_KAI_QUEUE, "spec.kaiQueue is not set: jobs run without a KAI queue"
    if queue.metadata.deletion_timestamp is not None:
        return "False", QueueReason.DELETING, _deleting_message(observed)
    if plan.problem is not None:
        return "False", QueueReason.NOT_READY, "the spec was not accepted"
    if not observed.kai_available:
        return (
            "False",
            QueueReason.KAI_NOT_INSTALLED,
            "the cluster has no queues.scheduling.run.ai: install KAI-Scheduler; this queue goes on by itself then",
        )
    if refusal is not None:
        return "False", refusal.reason, refusal.message
    if not manages(queue):
        return _referenced(observed, name)
    return _managed(observed, name)


def _referenced(observed: Observed, name: str) -> Verdict:
    if observed.kai_queue is None:
        return (
            "False",
            QueueReason.KAI_QUEUE_NOT_FOUND,
            f"KAI Queue {name} does not exist and kaiQueuePolicy is Reference: create it, or set Manage",
        )
    return "True", QueueReason.KAI_QUEUE_READY, f"KAI Queue {name} exists; it is not managed here"


def _managed(observed: Observed, name: str) -> Verdict:
    parent, found = observed.queue.spec.parent_kai_queue, observed.kai_queue
    if parent is not None and parent not in observed.kai_queues:
        return (
            "False",
            QueueReason.PARENT_NOT_FOUND,
            f"spec.parentKaiQueue: KAI Queue {parent} does not exist, and KAI ignores queues without their parent: "
            "create it, or name another",
        )
    if found is not None and is_foreign(observed):
        owner = "/".join(filter(None, (found.metadata.annotations.get(key) for key in (QUEUE_NAMESPACE, QUEUE))))
        return (
            "False",
            QueueReason.CONFLICT,
            f"KAI Queue {name} belongs to {owner or 'somebody else'} and was left as it is: choose another kaiQueue, "
            "or set kaiQueuePolicy: Reference to use it as it is",
        )
    return "True", QueueReason.KAI_QUEUE_READY, f"KAI Queue {name} is as this queue asks"


def _deleting_message(observed: Observed) -> str:
    waiting = [job.metadata.name for job in observed.unfinished]
    if not waiting:
        return "the KAI Queue is being deleted"
    shown = ", ".join(sorted(waiting)[:5]) + (", ..." if len(waiting) > 5 else "")
    return f"the KAI Queue is kept until {len(waiting)} unfinished job(s) end: {shown}"


def _ready(verdicts: dict[QueueCondition, Verdict]) -> Verdict:
    wrong = [type_ for type_, (status, _, _) in verdicts.items() if status != "True"]
    if wrong:
        return "False", QueueReason.NOT_READY, f"{wrong[0]} is not true: {verdicts[wrong[0]][2]}"
    return "True", QueueReason.READY, "jobs can be submitted"


def _kai_status(observed: Observed) -> KaiQueueStatus | None:
    found = observed.kai_queue
    if found is None or (manages(observed.queue) and is_foreign(observed)):
        return None
    status = found.status
    return KaiQueueStatus(
        name=found.metadata.name,
        uid=found.metadata.uid,
        allocated=_amounts(status.allocated if status else None),
        requested=_amounts(status.requested if status else None),
    )


def _amounts(resources: dict[str, str | int | float] | None) -> dict[str, str]:
    return {name: str(amount) for name, amount in (resources or {}).items()}


def _job_counts(jobs: Iterable[TorchrunJob]) -> JobCounts:
    return JobCounts(**Counter(counted_as(job.status.phase) for job in jobs))


def _gpu_counts(jobs: Iterable[TorchrunJob]) -> GpuCounts:
    unfinished = [job for job in jobs if job.status.phase not in TERMINAL]
    running = (job.status.gpus for job in unfinished if job.status.phase == Phase.RUNNING)
    return GpuCounts(requested=sum(job.status.gpus for job in unfinished), running=sum(running))
