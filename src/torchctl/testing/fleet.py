"""Nodes that exist only as objects: with GPUs, kept Ready by their Leases, lost and found again on demand."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.clock import Clock
from torchctl.runtime.kinds import LEASE
from torchctl.testing.gangs import Machine
from torchctl.testing.nodekinds import NODE
from torchctl.testing.persist import Persistence

__all__ = ["GPU", "Fleet", "NodeSpec", "default_nodes"]

GPU = "nvidia.com/gpu"
GPU_PRODUCT = "nvidia.com/gpu.product"

LEASE_NAMESPACE = "kube-node-lease"
LEASE_S = 40
RENEWAL_S = 10.0
"""Seconds between renewals, as of the real kubelet: the node lifecycle controller gives up on a node after 50 s."""

MANAGER = "scripted-kubelet"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node. `gpus` is its capacity of nvidia.com/gpu, `gpu_product` the label that goes with it."""

    name: str
    gpus: int = 8
    gpu_product: str = "NVIDIA-H100-80GB-HBM3"
    cpu: str = "128"
    memory: str = "1Ti"
    pods: int = 500
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def all_labels(self) -> dict[str, str]:
        base = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        gpu = {GPU_PRODUCT: self.gpu_product} if self.gpus else {}
        return {**base, **gpu, **self.labels}

    @property
    def capacity(self) -> dict[str, str]:
        amounts = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods), "ephemeral-storage": "1Ti"}
        return amounts | ({GPU: str(self.gpus)} if self.gpus else {})


def default_nodes(count: int = 4) -> tuple[NodeSpec, ...]:
    """Returns nodes with eight GPUs each."""
    return tuple(NodeSpec(name=f"node-{index}") for index in range(count))


class Fleet:
    """The nodes. A node that is up renews its Lease; one that is lost writes nothing at all.

    Attributes:
        port: The port at which the API server reaches the kubelets of all nodes; set before `create`.
    """

    def __init__(self, client: Client, nodes: Sequence[NodeSpec], *, persist: Persistence, clock: Clock) -> None:
        self._client = client
        self._nodes = {node.name: node for node in nodes}
        self._persist = persist
        self._clock = clock
        self.port = 0
        self._up = {name: anyio.Event() for name in self._nodes}
        for event in self._up.values():
            event.set()

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    @property
    def machines(self) -> list[Machine]:
        """The nodes that are up."""
        return [
            Machine(node.name, node.all_labels, {GPU: node.gpus})
            for node in self._nodes.values()
            if self._up[node.name].is_set()
        ]

    async def wait_up(self, name: str) -> None:
        await self._up[name].wait()

    async def create(self) -> None:
        """Registers the nodes and waits until pods can be scheduled to them."""
        async with anyio.create_task_group() as tasks:
            for node in self._nodes.values():
                tasks.start_soon(self._register, node)

    async def delete(self) -> None:
        async with anyio.create_task_group() as tasks:
            for name in self._nodes:
                tasks.start_soon(self._deregister, name)

    async def run(self) -> None:
        """Keeps the nodes alive until cancelled."""
        while True:
            await self._clock.sleep(RENEWAL_S)
            async with anyio.create_task_group() as tasks:
                for name, up in self._up.items():
                    if up.is_set():
                        tasks.start_soon(self._renew, name)
            await self._recover()

    async def lose(self, name: str) -> None:
        """Silences a node, and marks it lost at once, as the node lifecycle controller does after 50 s of silence."""
        self._up[name] = anyio.Event()
        await self._report(self._nodes[name], "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")

    async def restore(self, name: str) -> None:
        """Brings a node back; its pods continue."""
        await self._renew(name)
        await self._ready(self._nodes[name])
        self._up[name].set()

    async def _recover(self) -> None:
        """Marks nodes that are up as ready again, as a kubelet does.

        They may count as lost because their Leases came late, or were seen late while the API server was away.
        """
        for node in await self._persist(lambda: self._client.list(NODE)):
            name = node.metadata.name
            if node.spec.taints and name in self._up and self._up[name].is_set():
                await self._ready(self._nodes[name])

    async def _ready(self, node: NodeSpec) -> None:
        await self._report(node, "True", "KubeletReady", "scripted kubelet is posting ready status")

    async def _register(self, node: NodeSpec) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": node.all_labels},
            "spec": {"providerID": f"scripted://{node.name}"},
        }
        await self._persist(lambda: self._client.apply(NODE, body, force=True, field_manager=MANAGER))
        await self._renew(node.name)
        await self._ready(node)
        # The API server taints new nodes, and the node lifecycle controller removes the taint.
        while (await self._client.get(NODE, node.name)).spec.taints:
            await self._clock.sleep(0.02)

    async def _deregister(self, name: str) -> None:
        for kind, namespace in ((NODE, ""), (LEASE, LEASE_NAMESPACE)):
            with suppress(NotFound):
                await self._client.delete(kind, name, namespace=namespace)

    async def _renew(self, name: str) -> None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": LEASE_S,
                "renewTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        await self._persist(lambda: self._client.apply(LEASE, body, force=True, field_manager=MANAGER))

    async def _report(self, node: NodeSpec, ready: str, reason: str, message: str) -> None:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status: dict[str, Any] = {
            "capacity": node.capacity,
            "allocatable": node.capacity,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            "conditions": [
                {
                    "type": "Ready",
                    "status": ready,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
        }
        await self._persist(lambda: self._client.merge_patch(NODE, node.name, {"status": status}, subresource="status"))
