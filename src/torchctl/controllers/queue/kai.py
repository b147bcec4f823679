"""The KAI Queue of a TorchrunQueue, and how its owner is recorded.

A KAI Queue is cluster-scoped, so it cannot have a namespaced owner reference. An annotation with
the uid of the TorchrunQueue claims it, and a finalizer on the TorchrunQueue makes sure that it is deleted.
"""

from typing import Any

from torchctl.api import names
from torchctl.api.kube import KaiQueue
from torchctl.api.labels import APP_MANAGED_BY, QUEUE, QUEUE_UID
from torchctl.api.quantity import parse
from torchctl.api.queue import TorchrunQueue
from torchctl.api.quota import ComputeResources, GpuResources
from torchctl.runtime.intent import INTENT_ANNOTATION, Ownership
from torchctl.runtime.kinds import ObjectMeta

__all__ = ["QUEUE_NAMESPACE", "claim_of", "claimed_by", "kai_queue", "release"]

QUEUE_NAMESPACE = f"{names.GROUP}/queue-namespace"
UNBOUNDED = -1
MEGABYTE = 10**6


def claim_of(meta: ObjectMeta) -> str:
    """Returns the uid of the TorchrunQueue that claimed this KAI Queue; empty if none did."""
    return meta.annotations.get(QUEUE_UID, "")


def claimed_by(uid: str) -> Ownership:
    """Returns a predicate that recognises the KAI Queues that this TorchrunQueue claimed."""
    return lambda meta: claim_of(meta) == uid


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
    """Returns the merge patch that takes our claim off a KAI Queue and leaves all else as it is.

    It applies only to the version that was read.
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
    """Returns a whole number as int, because the API server returns it so."""
    return int(number) if number == int(number) else number
