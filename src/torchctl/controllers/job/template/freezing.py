"""Step one: the queue is found, the two are judged, and the template is frozen.

The name of the ControllerRevision is written to status before the revision or any other child exists. So after a
crash at any point either the revision is there and holds, or it is made again: from the same queue it is the same; from
a queue that was edited meanwhile it is another, and it is recorded anew as long as nothing runs.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from torchctl.api import names
from torchctl.api.conditions import JobReason
from torchctl.api.job import QueueUpdatePolicy
from torchctl.api.jobrules import object_problems
from torchctl.api.kube import KAI_PODGROUP
from torchctl.api.labels import WORKSPACE_PACKED
from torchctl.api.queue import TorchrunQueue
from torchctl.api.queueconditions import QueueReason
from torchctl.api.rules import nesting, problems
from torchctl.api.volcano import VOLCANO_PODGROUP
from torchctl.controllers.finding import Finding
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.template.caveats import access_modes, with_caveats
from torchctl.controllers.job.template.digest import is_sealed
from torchctl.controllers.job.template.errors import Impossible
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.job.template.render import render
from torchctl.controllers.queuespec.policy import condition_of, managed_queue
from torchctl.controllers.queuespec.validate import problem_of
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import Condition, Kind

__all__ = ["Frozen", "freeze"]


@dataclass(frozen=True, slots=True)
class Frozen:
    """The result of freezing a job's template.

    Args:
        template: The template of the children; None if there is none (yet).
        revision: The name of its ControllerRevision; if status does not have it, it must be written first.
        hold: Whether nothing new may be started.
        renamed: Whether it is another template than the one that status names, of which there seems to be no revision.
        stays: Whether the next attempt goes on with this template, because another one cannot be made.
    """

    accepted: Finding
    queue_found: Finding
    template: FrozenTemplate | None = None
    revision: str = ""
    hold: bool = False
    missing_claim: str = ""
    renamed: bool = False
    stays: bool = False


def freeze(observed: Observed, settings: OperatorSettings) -> Frozen:
    """The job's template: the frozen one, or the one to freeze."""
    job = observed.job
    broken = () if observed.revision is not None else (*object_problems(job), *nesting(job.spec), *problems(job.spec))
    accepted = _accepted("; ".join(map(str, broken)))
    queue_found = _queue_found(observed, settings)
    if observed.revision is not None:
        hold = queue_found.reason in (JobReason.QUEUE_NOT_READY, JobReason.WAITING_FOR_QUEUE)
        return _or_next(observed, settings, _load(observed, accepted, queue_found, hold=hold))
    if observed.queue is None or not queue_found.ok or not accepted.ok:
        return Frozen(accepted, queue_found, revision=job.status.queue_revision, hold=True)
    return _render(observed, observed.queue, settings, accepted, queue_found)


def _or_next(observed: Observed, settings: OperatorSettings, frozen: Frozen) -> Frozen:
    """The frozen template; with queueUpdatePolicy NextAttempt it says whether the next attempt can have another one."""
    if observed.job.spec.queue_update_policy is not QueueUpdatePolicy.NEXT_ATTEMPT or frozen.template is None:
        return frozen
    fresh = freeze(replace(observed, revision=None), settings).accepted
    if fresh.ok:
        return frozen  # one that waits for its queue waits with its next attempt
    why = f"attempts go on with the template of before, because none can be made now: {fresh.message}"
    message = f"{frozen.accepted.message}; {why}"
    return replace(frozen, accepted=Finding(True, JobReason.TEMPLATE_STAYS, message), stays=True)


_NOT_OURS = (QueueReason.CONFLICT, QueueReason.FOREIGN_OBJECT, QueueReason.STILL_DELETING)
"""Reasons of a queue's condition by which the scheduler's Queue of that name is another's, or was."""

_NOT_INSTALLED: dict[str, Kind[Any]] = {
    QueueReason.KAI_NOT_INSTALLED: KAI_PODGROUP,
    QueueReason.VOLCANO_NOT_INSTALLED: VOLCANO_PODGROUP,
}
"""What the cluster lacks while a queue gives such a reason; once that is there, nobody has looked yet."""


def _accepted(broken: str) -> Finding:
    if broken:
        return Finding(False, JobReason.INVALID_SPEC, f"{broken}; submit another job instead", warn=True)
    return Finding(True, JobReason.ACCEPTED, "the spec is valid")


def _queue_found(observed: Observed, settings: OperatorSettings) -> Finding:
    name, queue = observed.job.spec.job_queue, observed.queue
    frozen = "; this job goes on with its frozen template" if observed.revision is not None else ""
    if queue is None:
        step = frozen or "; create it, this job goes on by itself then, or submit it again with another jobQueue"
        return Finding(False, JobReason.QUEUE_NOT_FOUND, f"TorchrunQueue {name} does not exist{step}", warn=True)
    conflict = "" if observed.was_started else _conflict(queue)
    if conflict:
        return Finding(False, JobReason.QUEUE_NOT_READY, f"TorchrunQueue {name}: {conflict}", warn=True)
    unknown = "" if observed.was_started else _unknown(observed, queue)
    if frozen and not (unknown and _condition_in_force(queue)):  # an edit of the queue is for later jobs
        return Finding(True, JobReason.QUEUE_FOUND, f"TorchrunQueue {name} exists")
    if queue.metadata.deletion_timestamp is not None:
        message = f"TorchrunQueue {name} is being deleted; create it again, this job goes on by itself then"
        return Finding(False, JobReason.QUEUE_NOT_READY, message, warn=True)
    problem = problem_of(queue, settings.kai_parent_queues, coordinated=settings.coordinator is not None)
    if problem is not None:
        return Finding(False, JobReason.QUEUE_NOT_READY, f"TorchrunQueue {name}: {problem[1]}", warn=True)
    if unknown:
        return Finding(False, JobReason.WAITING_FOR_QUEUE, unknown)
    return Finding(True, JobReason.QUEUE_FOUND, f"TorchrunQueue {name} exists")


def _conflict(queue: TorchrunQueue) -> str:
    """Explains why nothing may start in a scheduler's Queue that is another's, whose GPUs the pods would take."""
    condition = _condition_in_force(queue)
    return condition.message if condition is not None and condition.reason in _NOT_OURS else ""


def _unknown(observed: Observed, queue: TorchrunQueue) -> str:
    """Explains that nobody has looked yet whose the scheduler's Queue is, since the scheduler is there; else empty."""
    noun, condition = managed_queue(queue.spec), _condition_in_force(queue)
    kind = _NOT_INSTALLED.get(condition.reason) if condition is not None else None
    if not noun or (condition is not None and (kind is None or kind in observed.absent)):
        return ""
    said = f": {condition.message}" if condition is not None else ""
    return f"waits until it is known whose {noun} of TorchrunQueue {queue.metadata.name} is{said}"


def _condition_in_force(queue: TorchrunQueue) -> Condition | None:
    """What the queue reconciler says of the scheduler's Queue; None until it has looked at this spec."""
    known = condition_of(queue)
    return known if known is not None and known.observed_generation == queue.metadata.generation else None


def _load(observed: Observed, accepted: Finding, queue_found: Finding, *, hold: bool) -> Frozen:
    assert observed.revision is not None
    name = observed.revision.metadata.name
    if not is_sealed(observed.revision):
        message = f"ControllerRevision {name} has other data than its name says, so it is not believed: delete it"
        return Frozen(Finding(False, JobReason.FOREIGN_OBJECT, message, warn=True), queue_found, None, name, hold=True)
    try:
        template = FrozenTemplate.load(observed.revision.data)
    except msgspec.ValidationError as error:
        message = f"ControllerRevision {name} cannot be read ({error}): submit the job again"
        return Frozen(Finding(False, JobReason.INVALID_SPEC, message, warn=True), queue_found, None, name, hold=True)
    return Frozen(with_caveats(accepted, observed, template), queue_found, template, name, hold)


def _render(
    observed: Observed, queue: TorchrunQueue, settings: OperatorSettings, accepted: Finding, queue_found: Finding
) -> Frozen:
    job, recorded = observed.job, observed.job.status.queue_revision
    missing = next((name for name, claim in observed.claims.items() if claim is None), "")
    if missing:
        return Frozen(accepted, queue_found, revision=recorded, hold=True, missing_claim=missing)
    there = (*observed.claims.values(), observed.workspace)
    modes = next((access_modes(claim.spec) for claim in there if claim is not None), ())
    packed = observed.workspace is not None and WORKSPACE_PACKED in observed.workspace.metadata.annotations
    try:
        template = render(job, queue, settings, claim_modes=modes, claim_packed=packed, absent=observed.absent)
    except Impossible as error:
        found = Finding(False, error.reason, error.message, warn=True)
        return Frozen(found, queue_found, revision=recorded, hold=True)
    name = names.revision(job.metadata.name, template.digest())
    if observed.was_started and name != recorded:
        # The running workers were made from a template that nobody can name any more; they are left as they are.
        return Frozen(accepted, queue_found, revision=recorded, hold=True)
    refusal = observed.refusal(template.gang_scheduler) if template.auto and name != recorded else ""
    if refusal:
        found = Finding(False, JobReason.POD_GROUPS_REFUSED, f"scheduler auto waits: {refusal}", warn=True)
        return Frozen(found, queue_found, revision=recorded, hold=True)
    renamed = recorded not in ("", name)
    return Frozen(with_caveats(accepted, observed, template), queue_found, template, name, renamed=renamed)
