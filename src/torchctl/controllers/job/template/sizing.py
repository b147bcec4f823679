"""How many pods a job has, and what each of them gets."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any

from torchctl.api import quantity
from torchctl.api.conditions import JobReason
from torchctl.api.job import JobSpec
from torchctl.controllers.job.template.errors import Impossible

__all__ = ["Shape", "amounts", "shape", "total"]

MILLI = Fraction(1, 1000)


@dataclass(frozen=True, slots=True)
class Shape:
    """`nodes` pods with `gpus` GPUs each; `share` is the part of a node that a pod gets."""

    nodes: int
    gpus: int
    share: Fraction = Fraction(1)


def shape(job: JobSpec, per_node: int, queue: str) -> Shape:
    """The pods of a job in a queue whose nodes have `per_node` GPUs: as few nodes as hold them, evenly filled.

    Raises:
        Impossible: The GPUs cannot be spread evenly, or the queue has none.
    """
    if job.num_nodes is not None:
        return Shape(job.num_nodes, per_node)
    wanted = job.num_gpus or 0
    if wanted == 0:
        return Shape(1, 0)
    if per_node == 0:
        raise Impossible(
            JobReason.IMPOSSIBLE_GPU_COUNT,
            f"spec.numGPUs is {wanted}, but TorchrunQueue {queue} has no GPUs (nodeResources.gpus): "
            "use numNodes, or another queue",
        )
    nodes = -(-wanted // per_node)
    if wanted % nodes:
        raise Impossible(
            JobReason.IMPOSSIBLE_GPU_COUNT,
            f"spec.numGPUs: {wanted} GPUs cannot be spread evenly over the {nodes} nodes of {per_node} that they need: "
            f"{_nearest(wanted, per_node, -1)} and {_nearest(wanted, per_node, 1)} work",
        )
    return Shape(nodes, wanted // nodes, Fraction(wanted // nodes, per_node))


def _nearest(wanted: int, per_node: int, step: int) -> int:
    """The next total in one direction that works; a multiple of a node's GPUs is never far."""
    return next(total for total in count(wanted + step, step) if total % -(-total // per_node) == 0)


def amounts(resources: dict[str, Any], share: Fraction) -> dict[str, str]:
    """Requests or limits in canonical form, with the pod's share of CPU and memory."""
    steps = {"cpu": MILLI, "memory": Fraction(1)}
    return {
        name: str(quantity.parse(amount).times(share).floor(steps[name]) if name in steps else quantity.parse(amount))
        for name, amount in resources.items()
    }


def total(size: str | int | None, per_gpu: str | int | None, gpus: int, default: str) -> str:
    """The size of a claim, canonical: fixed, or so much for each GPU (at least one)."""
    if size is not None:
        return quantity.canonical(size)
    if per_gpu is not None:
        return str(quantity.parse(per_gpu).times(max(1, gpus)))
    return quantity.canonical(default)
