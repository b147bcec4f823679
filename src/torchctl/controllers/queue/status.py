"""The status of a TorchrunQueue, derived from what was observed. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from torchctl.api.counts import agree, counted
from torchctl.api.job import TorchrunJob
from torchctl.api.kube import CONFIG_MAP, ConfigMap
from torchctl.api.labels import QUEUE
from torchctl.api.phases import TERMINAL, Phase
from torchctl.api.quantity import canonical
from torchctl.api.queue import (
    TORCHRUN_QUEUE,
    GpuCounts,
    JobCounts,
    KaiQueueStatus,
    QueueStatus,
    TorchrunQueue,
    VolcanoQueueStatus,
)
from torchctl.api.queueconditions import QueueCondition, QueueReason
from torchctl.api.rules import nesting
from torchctl.api.words import EventType
from torchctl.controllers.finding import Finding, Refusal
from torchctl.controllers.queue.claims import QUEUE_NAMESPACE, Queues, Scheduler
from torchctl.controllers.queue.inventory import Item, assess, inventory
from torchctl.controllers.queue.plan import Observed, Plan, parent_problem
from torchctl.runtime.conditions import carry_over
from torchctl.runtime.intent import digest_of
from torchctl.runtime.kinds import Condition

__all__ = ["counted_as", "derive", "transitions"]

_EVENTS = {str(reason): reason.event for reason in QueueReason}

_COUNTED_AS: Mapping[str, str] = {
    Phase.SYNCING: "syncing",
    Phase.QUEUED: "queued",
    Phase.STARTING: "running",
    Phase.RUNNING: "running",
    Phase.RESTARTING: "running",
    Phase.SUSPENDED: "suspended",
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
}


def derive(observed: Observed, plan: Plan, refusals: Sequence[Refusal], now: datetime) -> QueueStatus:
    """Derives the status after a pass that carried `plan` out, except for what was refused."""
    queue = observed.queue
    items = _items(observed, plan, refusals)
    findings = {
        QueueCondition.ACCEPTED: _accepted(plan),
        QueueCondition.KAI_QUEUE_READY: _kai_queue_ready(observed, plan, refusals, now),
        **_volcano_queue_ready(observed, plan, refusals, now),
        QueueCondition.RESOURCES_READY: _resources_ready(observed, plan, items, refusals, now),
    }
    findings[QueueCondition.READY] = _ready(findings)
    conditions = tuple(
        Condition(type_, str(found.ok), found.reason, found.message, observed_generation=queue.metadata.generation)
        for type_, found in findings.items()
    )
    return QueueStatus(
        observed_generation=queue.metadata.generation,
        conditions=carry_over(queue.status.conditions, conditions, now),
        kai_queue=_kai_status(observed),
        volcano_queue=_volcano_status(observed),
        jobs=_job_counts(observed.jobs),
        gpus=_gpu_counts(observed.jobs),
        kept_workspaces=observed.kept_workspaces,
        resources=tuple(item.state for item in items) if items is not None else queue.status.resources,
        template_hash=template_hash(queue),
    )


def template_hash(queue: TorchrunQueue) -> str:
    """Returns a hash of the spec; empty if no job can use it."""
    if any(nesting(queue.spec)):
        return ""
    return digest_of(queue.spec.model_dump(mode="json", by_alias=True, exclude_unset=True))


def counted_as(phase: str) -> str:
    """Returns the field of status.jobs in which a job of this phase is counted."""
    return _COUNTED_AS.get(phase, "pending")


def transitions(old: QueueStatus, new: QueueStatus) -> tuple[tuple[str, str, str], ...]:
    """Returns the Events of a change of status as (type, reason, message), one for each condition that changed."""
    before = {condition.type: (condition.status, condition.reason) for condition in old.conditions}
    return tuple(
        (type_, condition.reason, condition.message)
        for condition in new.conditions
        if before.get(condition.type) != (condition.status, condition.reason)
        and (type_ := _EVENTS.get(condition.reason, EventType.WARNING))
    )


def _accepted(plan: Plan) -> Finding:
    if plan.problem is not None:
        return Finding(False, *plan.problem)
    return Finding(True, QueueReason.ACCEPTED, "the spec is valid")


def _items(observed: Observed, plan: Plan, refusals: Sequence[Refusal]) -> tuple[Item, ...] | None:
    """Returns the state of the objects of spec.resources; None if this pass does nothing about them."""
    idle = plan.problem is not None or observed.queue.metadata.deletion_timestamp is not None
    return None if idle else inventory(observed, refusals)


def _resources_ready(
    observed: Observed, plan: Plan, items: tuple[Item, ...] | None, refusals: Sequence[Refusal], now: datetime
) -> Finding:
    if items is not None:
        asked = {item.extra.key for item in items}
        older = [found.metadata.name for found in observed.config_maps if _key(found) not in asked]
        stays = [refusal for refusal in refusals if refusal.kind == CONFIG_MAP.kind and refusal.name in older]
        return assess(items, len(older), stays[0].message if stays else "")
    if not observed.queue.spec.resources and not observed.config_maps:
        return Finding(True, QueueReason.NO_RESOURCES, "the queue asks for no further objects")
    if plan.problem is not None:
        return Finding(False, QueueReason.NOT_READY, "the spec was not accepted")
    kept = _kept_for(observed, now)
    return Finding(
        False, QueueReason.DELETING, f"ConfigMaps {f'are {kept}' if kept else 'go'}; claims stay, with their data"
    )


def _key(config_map: ConfigMap) -> tuple[str, str]:
    return CONFIG_MAP.kind, config_map.metadata.name


def _kai_queue_ready(observed: Observed, plan: Plan, refusals: Sequence[Refusal], now: datetime) -> Finding:
    kai = observed.kai
    said = _out_of_hand(observed, kai, plan, refusals, now)
    if said is not None:
        return said
    if kai.name is None:
        return Finding(True, QueueReason.NO_KAI_QUEUE, "spec.kaiQueue is not set: jobs run without a KAI queue")
    if not kai.available:
        return Finding(False, QueueReason.KAI_NOT_INSTALLED, _not_installed(kai.scheduler))
    if not kai.managed and kai.named is None:
        return Finding(
            False,
            QueueReason.KAI_QUEUE_NOT_FOUND,
            f"KAI Queue {kai.name} does not exist and kaiQueuePolicy is Reference: create it, or set Manage",
        )
    problem = parent_problem(observed) if kai.managed else ""
    if problem:
        known = observed.queue.spec.parent_kai_queue in observed.kai_queues
        reason, step = (
            (QueueReason.PARENT_CYCLE, "name another")
            if known
            else (QueueReason.PARENT_NOT_FOUND, "create it, or name another")
        )
        return Finding(False, reason, f"spec.parentKaiQueue: {problem}: {step}")
    return Finding(True, QueueReason.KAI_QUEUE_READY, _ready_words(kai))


def _volcano_queue_ready(
    observed: Observed, plan: Plan, refusals: Sequence[Refusal], now: datetime
) -> dict[QueueCondition, Finding]:
    """Returns the condition of a queue that names a Volcano Queue, or still has one; other queues have none."""
    volcano = observed.volcano
    if volcano.name is None and not volcano.claimed:
        return {}
    return {QueueCondition.VOLCANO_QUEUE_READY: _of_volcano(observed, volcano, plan, refusals, now)}


def _of_volcano(observed: Observed, volcano: Queues, plan: Plan, refusals: Sequence[Refusal], now: datetime) -> Finding:
    name, found = volcano.name, volcano.named
    said = _out_of_hand(observed, volcano, plan, refusals, now)
    if said is not None:
        return said
    if name is None:
        names = ", ".join(sorted(found.metadata.name for found in volcano.claimed))
        message = f"Volcano Queue {names} goes once no unfinished job is left: the spec names none"
        return Finding(True, QueueReason.NO_VOLCANO_QUEUE, message)
    if not volcano.available:
        return Finding(False, QueueReason.VOLCANO_NOT_INSTALLED, _not_installed(volcano.scheduler))
    if not volcano.managed and found is None:
        return Finding(
            False,
            QueueReason.VOLCANO_QUEUE_NOT_FOUND,
            f"Volcano Queue {name} does not exist and volcanoQueuePolicy is Reference: create it, or set Manage",
        )
    state = found.status.state if found is not None and found.status is not None else ""
    if state in ("Closing", "Closed"):
        message = f"Volcano Queue {name} is {state} and takes in no more pods: open it"
        return Finding(False, QueueReason.VOLCANO_QUEUE_CLOSED, message)
    return Finding(True, QueueReason.VOLCANO_QUEUE_READY, _ready_words(volcano))


def _out_of_hand(
    observed: Observed, queues: Queues, plan: Plan, refusals: Sequence[Refusal], now: datetime
) -> Finding | None:
    """Returns why a scheduler's Queue is not looked after in this pass; None if it is.

    That it is another's comes before all else: by this alone no job starts in it.
    """
    deleting = observed.queue.metadata.deletion_timestamp is not None
    if not deleting and plan.problem is None and (lost := _not_ours(queues)):
        return lost
    nouns = (queues.scheduler.noun, TORCHRUN_QUEUE.kind)  # without its finalizer the queue has no such Queue either
    for refusal in refusals:
        if refusal.kind in nouns:
            return Finding(False, refusal.reason, refusal.message)
    if queues.name is None:
        return None
    noun = queues.scheduler.noun
    if deleting:
        kept = _kept_for(observed, now) or "being deleted"
        message = f"the {noun} is {kept}" if queues.managed else f"{noun} {queues.name} is not managed here, and stays"
        return Finding(False, QueueReason.DELETING, message)
    return Finding(False, QueueReason.NOT_READY, "the spec was not accepted") if plan.problem is not None else None


def _not_ours(queues: Queues) -> Finding | None:
    """Returns why the Queue that the operator should look after is not this queue's; None if it is, or is not there."""
    found = queues.named if queues.managed and queues.available else None
    if found is None:
        return None
    meta, noun, field = found.metadata, queues.scheduler.noun, queues.scheduler.field
    if queues.is_foreign:
        owner = "/".join(filter(None, (meta.annotations.get(key) for key in (QUEUE_NAMESPACE, QUEUE))))
        return Finding(
            False,
            QueueReason.CONFLICT,
            f"{noun} {queues.name} belongs to {owner or 'somebody else'} and was left as it is: choose another "
            f"{field}, or set {field}Policy: Reference to use it as it is",
        )
    if meta.deletion_timestamp is not None:
        held = f", held by {', '.join(meta.finalizers)}" if meta.finalizers else ""
        message = f"{noun} {queues.name} is being deleted{held}: it is made anew once it is gone"
        return Finding(False, QueueReason.STILL_DELETING, message)
    return None


def _ready_words(queues: Queues) -> str:
    state = "is as this queue asks" if queues.managed else "exists; it is not managed here"
    return f"{queues.scheduler.noun} {queues.name} {state}"


def _not_installed(scheduler: Scheduler) -> str:
    kind = f"{scheduler.kind.plural}.{scheduler.kind.group}"
    return f"the cluster has no {kind}: install {scheduler.program}; this queue goes on by itself then"


def _kept_for(observed: Observed, now: datetime) -> str:
    own = observed.queue.metadata.namespace
    metas = [job.metadata for job in observed.holding(now)]
    waiting = [meta.name if meta.namespace == own else f"{meta.namespace}/{meta.name}" for meta in metas]
    shown = ", ".join(sorted(waiting)[:5]) + (", ..." if len(waiting) > 5 else "")
    jobs = f"{counted(len(waiting), 'unfinished job')} {agree(len(waiting), 'ends', 'end')}"
    return f"kept until {jobs}: {shown}" if waiting else ""


def _ready(findings: Mapping[QueueCondition, Finding]) -> Finding:
    wrong = [type_ for type_, found in findings.items() if not found.ok]
    if wrong:
        return Finding(False, QueueReason.NOT_READY, f"{wrong[0]} is not true: {findings[wrong[0]].message}")
    return Finding(True, QueueReason.READY, "jobs can be submitted")


def _kai_status(observed: Observed) -> KaiQueueStatus | None:
    """Returns the state of the queue's KAI Queue, or of an earlier one that still exists.

    While KAI Queues cannot be watched the recorded state stays, because its name is recorded nowhere else.
    """
    if not observed.kai_available:
        return observed.queue.status.kai_queue if _concerns(observed, observed.kai) else None
    found = _shown(observed.kai)
    if found is None:
        return None
    status = found.status
    return KaiQueueStatus(
        name=found.metadata.name,
        uid=found.metadata.uid,
        allocated=_amounts(status.allocated if status else None),
        requested=_amounts(status.requested if status else None),
    )


def _volcano_status(observed: Observed) -> VolcanoQueueStatus | None:
    """As `_kai_status`, of the Volcano Queue."""
    if not observed.volcano_available:
        return observed.queue.status.volcano_queue if _concerns(observed, observed.volcano) else None
    found = _shown(observed.volcano)
    if found is None:
        return None
    state = found.status.state if found.status is not None else ""
    return VolcanoQueueStatus(name=found.metadata.name, uid=found.metadata.uid, state=state)


def _concerns(observed: Observed, queues: Queues) -> bool:
    """Whether the queue names such a Queue, or may still have one."""
    return queues.name is not None or queues.scheduler.finalizer in observed.queue.metadata.finalizers


def _shown(queues: Queues) -> Any | None:
    if queues.named is not None and not (queues.managed and queues.is_foreign):
        return queues.named
    return min(queues.claimed, key=lambda found: found.metadata.name, default=None)


def _amounts(resources: dict[str, str | int | float] | None) -> dict[str, str]:
    return {name: _amount(amount) for name, amount in (resources or {}).items()}


def _amount(amount: str | int | float) -> str:
    """Returns an amount that KAI wrote as text or number as a quantity; unchanged if it is none."""
    text = f"{amount:f}" if isinstance(amount, float) else str(amount)
    try:
        return canonical(text)
    except ValueError:
        return text


def _job_counts(jobs: Iterable[TorchrunJob]) -> JobCounts:
    return JobCounts(**Counter(counted_as(job.status.phase) for job in jobs))


def _gpu_counts(jobs: Iterable[TorchrunJob]) -> GpuCounts:
    asking = [job for job in jobs if job.status.phase not in (*TERMINAL, Phase.SUSPENDED)]
    running = (job.status.gpus for job in asking if job.status.phase == Phase.RUNNING)
    return GpuCounts(requested=sum(job.status.gpus for job in asking), running=sum(running))
