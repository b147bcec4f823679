"""The KAI Queue that a TorchrunQueue asks for. Pure."""

from typing import Any

from torchctl.api.quantity import parse
from torchctl.api.queue import TorchrunQueue
from torchctl.api.quota import ComputeResources, GpuResources
from torchctl.controllers.queue.claims import metadata

__all__ = ["kai_queue"]

UNBOUNDED = -1
MEGABYTE = 10**6


def kai_queue(queue: TorchrunQueue) -> dict[str, Any]:
    """Returns the KAI Queue that a TorchrunQueue asks for, with its claim. `spec.kaiQueue` must be set."""
    spec, resources = queue.spec, queue.spec.kai_resources
    optional = {
        "parentQueue": spec.parent_kai_queue,
        "priority": spec.kai_priority,
        "preemptMinRuntime": spec.preempt_min_runtime,
        "reclaimMinRuntime": spec.reclaim_min_runtime,
    }
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": metadata(queue, spec.kai_queue),
        "spec": {
            **{key: value for key, value in optional.items() if value is not None},
            "resources": {
                "gpu": _gpu(resources.gpu),
                "cpu": _compute(resources.cpu, _millicores),
                "memory": _compute(resources.memory, _megabytes),
            },
        },
    }


def _gpu(gpu: GpuResources) -> dict[str, float]:
    return {
        "quota": _plain(gpu.quota),
        "limit": _plain(gpu.limit),
        "overQuotaWeight": _plain(gpu.over_quota_weight),
    }


def _compute(resource: ComputeResources, convert: Any) -> dict[str, float]:
    return {
        "quota": convert(resource.quota),
        "limit": convert(resource.limit),
        "overQuotaWeight": _plain(resource.over_quota_weight),
    }


def _millicores(amount: str | int) -> float:
    return UNBOUNDED if amount in (UNBOUNDED, str(UNBOUNDED)) else parse(amount).milli


def _megabytes(amount: str | int) -> float:
    if amount in (UNBOUNDED, str(UNBOUNDED)):
        return UNBOUNDED
    return _plain(float(parse(amount).value / MEGABYTE))


def _plain(number: float) -> float:
    """Returns a whole number as int, because the API server returns it so."""
    return int(number) if number == int(number) else number
