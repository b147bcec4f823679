"""The Volcano Queue that a TorchrunQueue asks for. Pure."""

from typing import Any

from torchctl.api.queue import TorchrunQueue
from torchctl.api.volcano import VOLCANO_QUEUE
from torchctl.controllers.queue.claims import metadata

__all__ = ["volcano_queue"]


def volcano_queue(queue: TorchrunQueue) -> dict[str, Any]:
    """Returns the Volcano Queue of a TorchrunQueue, with its claim. `spec.scheduling.volcanoQueue` must be set.

    The weight is relative to that of all Queues of the cluster, and the quota is what the Queue may hold at most.
    """
    spec, quota = queue.spec, queue.spec.quota
    amounts = {spec.node_resources.gpu_resource_name: quota.gpus, "cpu": quota.cpus, "memory": quota.memory}
    capability = {name: str(amount) for name, amount in amounts.items() if amount is not None}
    return {
        "apiVersion": VOLCANO_QUEUE.api_version,
        "kind": VOLCANO_QUEUE.kind,
        "metadata": metadata(queue, spec.scheduling.volcano_queue),
        "spec": {"weight": spec.weight, **({"capability": capability} if capability else {})},
    }
