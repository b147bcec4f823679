"""The scheduler that a queue asks for. Pure."""

from torchctl.api.names import AUTO, DEFAULT_SCHEDULER, KAI_SCHEDULER, KUEUE, VOLCANO
from torchctl.api.queue import QueueSpec

__all__ = ["named_scheduler", "scheduler_of"]


def scheduler_of(spec: QueueSpec, default: str) -> str:
    """The scheduler that a queue asks for; empty for the cluster's default.

    A queue that names no scheduler has the one whose queue it names, else the operator's default. Kueue is none: the
    cluster's default places what it admits.
    """
    if spec.scheduling.kueue_queue is not None:
        return spec.scheduling.scheduler or ""
    implied = KAI_SCHEDULER if spec.kai_queue else VOLCANO if spec.scheduling.volcano_queue else default
    return spec.scheduling.scheduler or implied


def named_scheduler(spec: QueueSpec) -> str:
    """Who decides when jobs of a queue start, if the queue names somebody: empty if the coordinator may."""
    if spec.scheduling.kueue_queue is not None:
        return KUEUE
    asked = scheduler_of(spec, AUTO)
    return "" if asked in (AUTO, DEFAULT_SCHEDULER) else asked
