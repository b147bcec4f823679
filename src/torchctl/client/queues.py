"""Queues of a cluster."""

from typing import Any

from torchctl.client.cluster import Cluster
from torchctl.client.errors import NotFound
from torchctl.client.namespaces import check_namespace
from torchctl.client.views import QUEUE, QueueView
from torchctl.runtime.kinds import Key

__all__ = ["get_queue", "list_queues", "list_queues_raw"]


async def get_queue(cluster: Cluster, key: Key) -> QueueView:
    """Reads a queue. RBAC: get.

    Raises:
        NotFound: There is none; the message names those that there are.
    """
    try:
        with cluster.explained(f"TorchrunQueue {key.name} in namespace {key.namespace}"):
            return await cluster.client.get(QUEUE, key.name, key.namespace)
    except NotFound as error:
        known = sorted(queue.metadata.name for queue in await list_queues(cluster, namespace=key.namespace))
        step = f"Queues there: {', '.join(known)}." if known else "It has no queue yet: ask who runs the cluster."
        raise NotFound(error.what, step) from error


async def list_queues(cluster: Cluster, *, namespace: str = "") -> list[QueueView]:
    """Reads the queues of a namespace, empty for all. RBAC: list."""
    with cluster.explained(_scope(namespace)):
        found = await cluster.client.list(QUEUE, namespace=namespace)
    if not found:
        await check_namespace(cluster, namespace)
    return found


async def list_queues_raw(cluster: Cluster, *, namespace: str = "") -> list[dict[str, Any]]:
    """Reads the queues of a namespace, empty for all, with all their fields. RBAC: list."""
    with cluster.explained(_scope(namespace)):
        found = await cluster.client.list_raw(QUEUE, namespace=namespace)
    if not found:
        await check_namespace(cluster, namespace)
    return [*found]


def _scope(namespace: str) -> str:
    return f"TorchrunQueues in namespace {namespace}" if namespace else "TorchrunQueues in all namespaces"
