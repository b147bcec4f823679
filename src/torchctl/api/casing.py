"""How a Python name is spelt in JSON: camelCase with Kubernetes' initialisms (numGPUs, jobID, podIP)."""

__all__ = ["camel"]

_INITIALISMS = {"gpu": "GPU", "gpus": "GPUs", "id": "ID", "ip": "IP"}


def camel(name: str) -> str:
    """`size_per_gpu` is sizePerGPU; the first word stays in lower case."""
    first, *rest = name.split("_")
    return first + "".join(_INITIALISMS.get(word, word.capitalize()) for word in rest)
