"""Step three: whether a gang scheduler has let the job in, and in its own words why not."""

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.kube import KaiPodGroup
from torchctl.controllers.job import pods
from torchctl.controllers.job.finding import Finding
from torchctl.controllers.job.frozen import FrozenTemplate
from torchctl.controllers.job.observed import Observed
from torchctl.runtime.conditions import find

__all__ = ["assess"]


def assess(observed: Observed, template: FrozenTemplate) -> Finding:
    """Judges admission from the PodGroup and the pods; who was admitted stays so for the attempt."""
    kai = template.kai
    known = find(observed.job.status.conditions, JobCondition.ADMITTED)
    if known is not None and known.status == "True" and known.reason == JobReason.ADMITTED:
        return Finding(True, known.reason, known.message)
    if kai is not None and not observed.kai_available:
        message = (
            "the cluster has no podgroups.scheduling.run.ai: install KAI-Scheduler, this job goes on by itself then"
        )
        return Finding(False, JobReason.KAI_NOT_INSTALLED, message, warn=True)
    if kai is None or not kai.gang:
        return Finding(True, JobReason.NO_GANG, "no gang scheduler: the pods are placed one by one")
    if sum(pods.is_scheduled(pod) or pods.succeeded(pod) for pod in observed.pods) >= template.nodes:
        return Finding(True, JobReason.ADMITTED, f"all {template.nodes} pods are placed")
    why = _why(observed.podgroup)
    if why:
        return Finding(False, JobReason.WAITING_FOR_ADMISSION, why, warn=True)
    where = f"KAI queue {kai.queue}" if kai.queue else "KAI's default queue"
    return Finding(
        False,
        JobReason.WAITING_FOR_ADMISSION,
        f"waits for {template.gpus or template.nodes} {'GPUs' if template.gpus else 'nodes'} in {where}",
    )


def _why(group: KaiPodGroup | None) -> str:
    """KAI's reasons, without their order, which is no information."""
    status = group.status if group is not None else None
    said = {
        reason.message or reason.reason or condition.message or condition.reason
        for condition in (status.scheduling_conditions or () if status else ())
        if condition.status == "True"
        for reason in (condition.reasons or (condition,))
    }
    name = group.metadata.name if group is not None else ""
    return f"PodGroup {name}: {pods.shorten('; '.join(sorted(said)))}" if any(said) else ""
