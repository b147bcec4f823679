"""The scheduler that a queue asks for. Pure."""

from torchctl.api.names import KAI_SCHEDULER, VOLCANO
from torchctl.api.queue import QueueSpec

__all__ = ["scheduler_of"]


def scheduler_of(spec: QueueSpec, default: str) -> str:
    """The scheduler that a queue asks for; empty for the cluster's default.

    A queue that names no scheduler has the one whose queue it names, else the operator's default. Kueue is none: the
    cluster's default places what it admits.
    """
    if spec.scheduling.kueue_queue is not None:
        return spec.scheduling.scheduler or ""
    implied = KAI_SCHEDULER if spec.kai_queue else VOLCANO if spec.scheduling.volcano_queue else default
    return spec.scheduling.scheduler or implied
