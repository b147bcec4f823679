"""Which fields ask for behaviour that does not exist yet. They are refused by name, never silently ignored. Pure."""

from torchctl.api.queue import QueueSpec

__all__ = ["VOLCANO", "unsupported_in_queue"]

VOLCANO = "volcano"


def unsupported_in_queue(spec: QueueSpec) -> tuple[str, ...]:
    """Fields of a TorchrunQueue that ask for what does not work yet, with the value where others work."""
    asked = {
        "spec.scheduling.scheduler volcano": spec.scheduling.scheduler == VOLCANO,
        "spec.weight": spec.weight != 1,
        "spec.maxNodes": spec.max_nodes is not None,
        "spec.quota.gpus": spec.quota.gpus is not None,
    }
    return tuple(path for path, is_asked in asked.items() if is_asked)
