"""Finds fields that nobody heeds: they are refused by name, never ignored. Pure."""

from torchctl.api.queue import Preemption, QueueCapacity, QueueSpec
from torchctl.api.quota import QueueQuota
from torchctl.controllers.queuespec.policy import manages_volcano

__all__ = ["for_the_coordinator"]

_FOR_VOLCANO = {"spec.weight", "spec.quota.gpus", "spec.quota.cpus", "spec.quota.memory"}


def for_the_coordinator(spec: QueueSpec) -> str:
    """Returns the fields of a TorchrunQueue that the coordinator alone heeds, in one phrase; empty if none is set.

    A Volcano Queue that the operator makes takes the weight, and what of the quota is an amount.
    """
    heeded = _FOR_VOLCANO if manages_volcano(spec) else ()
    asked = {
        "spec.weight": spec.weight != 1,
        "spec.maxNodes": spec.max_nodes is not None,
        **_bounds("spec.quota", spec.quota),
        "spec.cohort": spec.cohort is not None,
        **_bounds("spec.borrowingLimit", spec.borrowing_limit),
        "spec.preemption": spec.preemption is not Preemption.NEVER,
        "spec.capacity": spec.capacity is not QueueCapacity.EXISTING,
    }
    return ", ".join(path for path, is_asked in asked.items() if is_asked and path not in heeded)


def _bounds(path: str, given: QueueQuota) -> dict[str, bool]:
    return {f"{path}.{name}": getattr(given, name) is not None for name in type(given).model_fields}
