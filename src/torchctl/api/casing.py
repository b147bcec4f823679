"""Spells Python names as JSON does: camelCase with Kubernetes' initialisms (numGPUs, jobID, podIP)."""

__all__ = ["camel"]

_INITIALISMS = {"gpu": "GPU", "gpus": "GPUs", "id": "ID", "ip": "IP"}


def camel(name: str) -> str:
    """Returns the name in camelCase: `size_per_gpu` becomes sizePerGPU."""
    first, *rest = name.split("_")
    return first + "".join(_INITIALISMS.get(word, word.capitalize()) for word in rest)
