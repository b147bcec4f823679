"""The scheduler that a queue asks for. Pure."""

from torchctl.api.names import KAI_SCHEDULER, NATIVE, VOLCANO
from torchctl.api.queue import QueueSpec

__all__ = ["scheduler_name", "scheduler_of"]


def scheduler_of(spec: QueueSpec) -> str:
    """The scheduler that a queue asks for; empty for the cluster's default.

    A queue that names no scheduler has the one whose queue it names.
    """
    implied = KAI_SCHEDULER if spec.kai_queue else VOLCANO if spec.scheduling.volcano_queue else ""
    return spec.scheduling.scheduler or implied


def scheduler_name(asked: str) -> str:
    """The schedulerName of pods whose queue asks for this scheduler; empty for the cluster's default."""
    return "" if asked == NATIVE else asked
