"""Computes how many pods a job has, and what each of them gets."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any

from torchctl.api import quantity
from torchctl.api.conditions import JobReason
from torchctl.api.job import JobSpec
from torchctl.controllers.job.template.errors import Impossible

__all__ = ["Node", "Shape", "amounts", "check_bound", "shape", "total"]

MILLI = Fraction(1, 1000)
_FLOORS = {"cpu": MILLI, "memory": Fraction(1)}


@dataclass(frozen=True, slots=True)
class Node:
    """The resources of a node of a queue.

    Args:
        claimed: Whether the GPUs come from the pod's resource claims, which cannot be divided.
    """

    gpus: int
    claimed: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """`nodes` pods with `gpus` GPUs each; `share` is the part of a node that a pod gets."""

    nodes: int
    gpus: int
    share: Fraction = Fraction(1)


def shape(job: JobSpec, node: Node, queue: str) -> Shape:
    """The pods of a job in a queue with such nodes: as few nodes as hold its GPUs, evenly filled.

    A pod without GPUs gets the part of a node that goes with one GPU, so that it does not keep the others from work.

    Raises:
        Impossible: The GPUs cannot be spread evenly, or the queue has none.
    """
    if job.num_nodes is not None:
        return Shape(job.num_nodes, node.gpus)
    wanted = job.num_gpus or 0
    if node.claimed:
        return _whole(wanted, node.gpus, queue)
    if wanted == 0:
        return Shape(1, 0, Fraction(1, max(1, node.gpus)))
    if node.gpus == 0:
        raise Impossible(
            JobReason.IMPOSSIBLE_GPU_COUNT,
            f"spec.numGPUs is {wanted}, but TorchrunQueue {queue} has no GPUs (nodeResources.gpus, or gpusPerNode if "
            "they come from resource claims): use numNodes, or another queue",
        )
    nodes = -(-wanted // node.gpus)
    if wanted % nodes:
        raise Impossible(
            JobReason.IMPOSSIBLE_GPU_COUNT,
            f"spec.numGPUs: {wanted} GPUs cannot be spread evenly over the {nodes} nodes of {node.gpus} that they "
            f"need: {_nearest(wanted, node.gpus, -1)} and {_nearest(wanted, node.gpus, 1)} work",
        )
    return Shape(nodes, wanted // nodes, Fraction(wanted // nodes, node.gpus))


def check_bound(job: JobSpec, shape: Shape, most: int) -> None:
    """Refuses a job that has, or can grow to, more pods than the operator makes for one job.

    Raises:
        Impossible: It is larger than `most` nodes.
    """
    nodes, field = shape.nodes, "spec.numNodes" if job.num_nodes is not None else "spec.numGPUs"
    if job.elastic is not None:
        nodes, field = job.elastic.max_nodes, "spec.elastic.maxNodes"
    if nodes > most:
        raise Impossible(
            JobReason.TOO_MANY_NODES,
            f"{field} makes {nodes} nodes, but this operator runs at most {most} for a job (--max-nodes): submit the "
            "job with fewer, or have the operator's bound raised",
        )


def _whole(wanted: int, per_node: int, queue: str) -> Shape:
    """Whole nodes only."""
    if wanted == 0 or wanted % per_node:
        lower = wanted // per_node * per_node
        work = f"{lower} and {lower + per_node} work" if lower else f"{per_node} works"
        raise Impossible(
            JobReason.IMPOSSIBLE_GPU_COUNT,
            f"spec.numGPUs is {wanted}, but in TorchrunQueue {queue} each pod has the {per_node} GPUs of its resource "
            f"claims (nodeResources.gpusPerNode), no more and no fewer: {work}",
        )
    return Shape(wanted // per_node, per_node)


def _nearest(wanted: int, per_node: int, step: int) -> int:
    """The next total in one direction that works; a multiple of a node's GPUs is never far."""
    return next(total for total in count(wanted + step, step) if total % -(-total // per_node) == 0)


def amounts(resources: dict[str, Any], share: Fraction) -> dict[str, str]:
    """Requests or limits in canonical form, with the pod's share of what a node has.

    CPU and memory are rounded down; extended resources, such as the adapters of RDMA, are whole things, so they are
    rounded up: half of a node's GPUs without an adapter would be slow, not small. All else is not divided.
    """
    return {name: str(_amount(name, quantity.parse(amount), share)) for name, amount in resources.items()}


def _amount(name: str, amount: quantity.Quantity, share: Fraction) -> quantity.Quantity:
    if name in _FLOORS:
        return amount.times(share).floor(_FLOORS[name])
    return amount.times(share).ceil() if "/" in name else amount


def total(size: str | int | None, per_gpu: str | int | None, gpus: int, default: str) -> str:
    """The size of a claim, canonical: fixed, or so much for each GPU (at least one)."""
    if size is not None:
        return quantity.canonical(size)
    if per_gpu is not None:
        return str(quantity.parse(per_gpu).times(max(1, gpus)))
    return quantity.canonical(default)
