"""The KAI Queue of a TorchrunQueue, and whose a KAI Queue is.

A KAI Queue is cluster-scoped, so it cannot have a namespaced owner reference. It is claimed by the uid of the
TorchrunQueue in an annotation, and a finalizer on the TorchrunQueue sees to its end.
"""

from typing import Any

from torchctl.api import names
from torchctl.api.kube import KaiQueue
from torchctl.api.labels import APP_MANAGED_BY, QUEUE, QUEUE_UID
from torchctl.api.quantity import parse
from torchctl.api.queue import ComputeResources, GpuResources, TorchrunQueue
from torchctl.runtime.intent import INTENT_ANNOTATION, Ownership
from torchctl.runtime.kinds import ObjectMeta

__all__ = ["QUEUE_NAMESPACE", "claim_of", "claimed_by", "kai_queue", "release"]

QUEUE_NAMESPACE = f"{names.GROUP}/queue-namespace"
UNBOUNDED = -1
MEGABYTE = 10**6


def claim_of(meta: ObjectMeta) -> str:
    """The uid of the TorchrunQueue that claimed this KAI Queue, or empty."""
    return meta.annotations.get(QUEUE_UID, "")


def claimed_by(uid: str) -> Ownership:
    """The ownership of a KAI Queue by the TorchrunQueue of that uid."""
    return lambda meta: claim_of(meta) == uid


def kai_queue(queue: TorchrunQueue) -> dict[str, Any]:
    """The KAI Queue that this TorchrunQueue wants, claim included. `spec.kaiQueue` must be set."""
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
        "metadata": {
            "name": spec.kai_queue,
            "labels": {APP_MANAGED_BY: names.FIELD_MANAGER},
            "annotations": {
                QUEUE: queue.metadata.name,
                QUEUE_NAMESPACE: queue.metadata.namespace,
                QUEUE_UID: queue.metadata.uid,
            },
        },
        "spec": {
            **{key: value for key, value in optional.items() if value is not None},
            "resources": {
                "gpu": _gpu(resources.gpu),
                "cpu": _compute(resources.cpu, _millicores),
                "memory": _compute(resources.memory, _megabytes),
            },
        },
    }


def release(kai_queue: KaiQueue) -> dict[str, Any]:
    """The merge patch that hands a KAI Queue of ours over, as it is, to whoever looks after it from now on.

    Guarded by the version on which that was decided.
    """
    claim = (QUEUE, QUEUE_NAMESPACE, QUEUE_UID, INTENT_ANNOTATION)
    return {
        "metadata": {
            "uid": kai_queue.metadata.uid,
            "resourceVersion": kai_queue.metadata.resource_version,
            "labels": {APP_MANAGED_BY: None},
            "annotations": dict.fromkeys(claim),
        }
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
    """Whole numbers as int, as the API server reads them back."""
    return int(number) if number == int(number) else number
