"""A whole simulated cluster: a world with the controllers of a control plane, nodes, and replicas of an operator."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import Key
from torchctl.runtime.manager import Setup
from torchctl.testing.fake.objects import key_of
from torchctl.testing.fleet import NodeSpec, default_nodes
from torchctl.testing.script import Script
from torchctl.testing.sim.controllers.garbage import Events, GarbageCollector, Namespaces
from torchctl.testing.sim.controllers.jobs import JobController
from torchctl.testing.sim.controllers.kubelets import Kubelets
from torchctl.testing.sim.controllers.nodes import NodeLifecycle
from torchctl.testing.sim.controllers.scheduler import Scheduler
from torchctl.testing.sim.controllers.volumes import Volumes
from torchctl.testing.sim.kinds import NAMESPACE, NODE, cluster_kinds
from torchctl.testing.sim.replica import Replica
from torchctl.testing.sim.wire import Wire
from torchctl.testing.sim.world import World

__all__ = ["Cluster"]


class Cluster:
    """A simulated cluster. Use `Cluster.run` inside of `virtualtime.run`.

    Attributes:
        world: The API server, the agenda and the time.
        kubelets: Play the nodes; give them a script.
        nodes: The nodes.
        replicas: The processes of the operator that run.
    """

    def __init__(
        self,
        seed: int,
        setups: Sequence[Setup],
        *,
        script: Script | None = None,
        nodes: Iterable[NodeSpec] | None = None,
    ) -> None:
        self.world = World(cluster_kinds(), seed)
        self.kubelets = Kubelets(self.world, script or Script())
        for component in (JobController, Scheduler, Volumes, NodeLifecycle, GarbageCollector, Namespaces, Events):
            component(self.world)
        self.replicas: list[Replica] = []
        self._setups = setups
        self.nodes = tuple(nodes) if nodes is not None else default_nodes()
        self._started = 0
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def run(self, *, replicas: int = 1) -> AsyncGenerator["Cluster"]:
        """Runs the cluster beside the body, and ends it on the spot afterwards."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for node in self.nodes:
                self.add_node(node)
            tasks.start_soon(self.world.agenda.run)
            for _ in range(replicas):
                self.start_replica()
            yield self
            for replica in self.replicas:
                replica.kill()
            tasks.cancel_scope.cancel()

    @property
    def leaders(self) -> list[Replica]:
        """The replicas that would write now, at most one."""
        return [one for one in self.replicas if one.leads]

    def client(self, purpose: str) -> Client:
        """Returns a client of somebody else than the operator."""
        chance = self.world.chance(purpose)
        return Client(Wire(self.world, chance), clock=self.world.clock, rng=chance, field_manager=purpose)

    def start_replica(self, *, skew_s: float = 0.0) -> Replica:
        """Starts one more process of the operator."""
        assert self._tasks is not None
        self._started += 1
        replica = Replica(self.world, self._started, self._setups, skew_s=skew_s)
        self.replicas = [*(one for one in self.replicas if not one.ended.is_set()), replica]
        replica.start(self._tasks)
        return replica

    def create_namespace(self, name: str) -> None:
        meta = {"name": name, "finalizers": [Namespaces.FINALIZER]}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        self.world.create(NAMESPACE, "", body)

    def add_node(self, node: NodeSpec) -> None:
        """Makes a node that is ready."""
        meta = {"name": node.name, "labels": node.all_labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}}
        made = self.world.create(NODE, "", body)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.world.now}
        status = {"capacity": node.capacity, "allocatable": node.capacity, "conditions": [ready]}
        self.world.report(NODE, key_of(made), status)

    def remove_node(self, name: str) -> None:
        """Takes a node away for good, with all that runs there."""
        self.kubelets.remove(name)
        self.world.delete(NODE, Key("", name))
