"""Finds fields that ask for behaviour that does not exist yet: they are refused by name, never ignored. Pure."""

from torchctl.api.queue import QueueSpec

__all__ = ["unsupported_in_queue"]


def unsupported_in_queue(spec: QueueSpec) -> tuple[str, ...]:
    """Returns the fields of a TorchrunQueue that do not work yet, with the value if other values work."""
    asked = {
        "spec.weight": spec.weight != 1,
        "spec.maxNodes": spec.max_nodes is not None,
        "spec.quota.gpus": spec.quota.gpus is not None,
    }
    return tuple(path for path, is_asked in asked.items() if is_asked)
