"""Puts the pods into a real API server, over many connections at once."""

import anyio

from bench.pods import namespace_of, pod_body, pod_status
from torchctl.api.kube import POD
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Kind
from torchctl.testing.nodekinds import NODE

__all__ = ["populate"]

CONNECTIONS = 32

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", NODE.type, namespaced=False)
"""Only its metadata is read, so any type with metadata will do."""


async def populate(connection: Connection, count: int) -> None:
    """Creates `count` pods and reports each as running. The control plane needs no ServiceAccount admission."""
    async with connect(connection, field_manager="kube-controller-manager") as creator:
        for namespace in sorted({namespace_of(number) for number in range(count)}):
            await creator.create(NAMESPACE, _namespace(namespace))
        async with connect(connection, field_manager="kubelet") as kubelet, anyio.create_task_group() as tasks:
            for first in range(CONNECTIONS):
                tasks.start_soon(_create, creator, kubelet, range(first, count, CONNECTIONS))


async def _create(creator: Client, kubelet: Client, numbers: range) -> None:
    for number in numbers:
        body = pod_body(number)
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        await creator.create(POD, body)
        await kubelet.merge_patch(POD, name, {"status": pod_status(number)}, namespace=namespace, subresource="status")


def _namespace(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
