"""Finds fields that nobody heeds: they are refused by name, never ignored. Pure."""

from torchctl.api.queue import Preemption, QueueCapacity, QueueSpec
from torchctl.api.quota import QueueQuota

__all__ = ["for_the_coordinator"]


def for_the_coordinator(spec: QueueSpec) -> str:
    """Returns the fields of a TorchrunQueue that the coordinator alone heeds, in one phrase; empty if none is set."""
    asked = {
        "spec.weight": spec.weight != 1,
        "spec.maxNodes": spec.max_nodes is not None,
        **_bounds("spec.quota", spec.quota),
        "spec.cohort": spec.cohort is not None,
        **_bounds("spec.borrowingLimit", spec.borrowing_limit),
        "spec.preemption": spec.preemption is not Preemption.NEVER,
        "spec.capacity": spec.capacity is not QueueCapacity.EXISTING,
    }
    return ", ".join(path for path, is_asked in asked.items() if is_asked)


def _bounds(path: str, given: QueueQuota) -> dict[str, bool]:
    return {f"{path}.{name}": getattr(given, name) is not None for name in type(given).model_fields}
