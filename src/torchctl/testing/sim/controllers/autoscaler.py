"""The cluster autoscaler: brings nodes for pods that no node takes, and takes nodes away that nothing runs on.

It goes by pods, one by one, as Cluster Autoscaler and Karpenter do: it knows no gangs. A node comes a drawn time after
it was asked for, or never: then it is asked for again.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torchctl.api import quantity
from torchctl.api.kube import POD
from torchctl.runtime.kinds import Key
from torchctl.testing.fake.objects import Body, Changed
from torchctl.testing.fleet import NodeSpec
from torchctl.testing.sim.component import Component
from torchctl.testing.sim.kinds import NODE
from torchctl.testing.sim.scheduling import Place, choose, requests
from torchctl.testing.sim.world import World

__all__ = ["BROUGHT", "IDLE_S", "MOST", "Autoscaler"]

MANAGER = "cluster-autoscaler"
BROUGHT = "example.com/autoscaled"
"""The label of the nodes that it brought."""
LABELS = {BROUGHT: "true"}
NEW = NodeSpec(name="new", labels=LABELS)
_CAPACITY = {name: quantity.parse(text).value for name, text in NEW.capacity.items()}
MOST = 4
"""Nodes that it brings at most."""
SCAN_S = 10.0
IDLE_S = 300.0
"""Seconds without a pod after which a node goes."""
NO_STOCK = 0.25
"""The share of nodes that are asked for and never come."""
GIVES_UP_S = 900.0
"""Seconds after which a node is taken never to come (--max-node-provision-time)."""
LEAVING = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}

GROUP = "group"


class Autoscaler(Component):
    """One group of equal nodes. It looks every ten seconds while a pod has no node or one of its nodes is there.

    Args:
        add: Makes a node.
        remove: Takes one away.
    """

    def __init__(self, world: World, add: Callable[[NodeSpec], None], remove: Callable[[str], None]) -> None:
        super().__init__(world, "autoscaler", 1.0, SCAN_S)
        self._add, self._remove = add, remove
        self._names = 0
        self._coming = 0
        self._ready = 0
        self._idle_since_s: dict[str, float] = {}

    def on_change(self, changed: Changed) -> None:
        if changed.served.kind == POD and _is_refused(changed.new):
            self.wake(GROUP)

    def look(self, key: Any) -> None:
        if self._ready:
            self._bring()  # the scheduler places pods there before anything else is asked for
            self.wake(key, SCAN_S)
            return
        pods = self.world.all(POD)
        nodes = [node for node in self.world.all(NODE) if BROUGHT in node["metadata"]["labels"]]
        refused = [pod for pod in pods if _is_refused(pod)]
        self._ask(min(_nodes_for(refused), MOST - len(nodes)) - self._coming)
        busy = {pod["spec"].get("nodeName") for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")}
        self._drop([node for node in nodes if node["metadata"]["name"] not in busy])
        if nodes or refused:
            self.wake(key, SCAN_S)

    def _ask(self, count: int) -> None:
        for _ in range(count):
            self._coming += 1
            comes = self.chance.random() >= NO_STOCK
            after_s = self.chance.uniform(45, 600) if comes else GIVES_UP_S
            self.world.agenda.after(after_s, partial(self._arrive, comes=comes))

    def _arrive(self, *, comes: bool) -> None:
        self._coming -= 1
        self._ready += comes
        self.wake(GROUP, 0.0)

    def _bring(self) -> None:
        while self._ready:
            self._add(NodeSpec(name=f"brought-{self._names}", labels=LABELS))
            self._names += 1
            self._ready -= 1

    def _drop(self, idle: list[Body]) -> None:
        """Removes nodes that have been idle for long; so that no pod comes meanwhile, each has a taint first."""
        now_s, before = self.world.now_s, self._idle_since_s
        self._idle_since_s = {name: before.get(name, now_s) for name in (node["metadata"]["name"] for node in idle)}
        for node in idle:
            name = node["metadata"]["name"]
            if LEAVING in node.get("spec", {}).get("taints", ()):
                self._remove(name)
            elif now_s - self._idle_since_s[name] > IDLE_S:
                self.world.change(NODE, Key("", name), _tainted, MANAGER)


def _is_refused(pod: Body) -> bool:
    """Whether the default scheduler found no node for a pod that still wants one."""
    if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
        return False
    return any(one.get("reason") == "Unschedulable" for one in pod.get("status", {}).get("conditions", ()))


def _nodes_for(pods: Iterable[Body]) -> int:
    """Returns how many empty nodes these pods need; those that no such node takes count for none."""
    places: list[Place] = []
    for pod in pods:
        node = choose(pod, places)[0]
        if node is None:
            fresh = Place(NEW.name, NEW.all_labels, (), {**_CAPACITY})
            if choose(pod, [fresh])[0] is None:
                continue
            places.append(fresh)
            node = fresh
        node.take(requests(pod))
    return len(places)


def _tainted(node: Body) -> Body:
    return {**node, "spec": {"taints": [*node.get("spec", {}).get("taints", ()), LEAVING]}}
