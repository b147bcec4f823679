"""The schedulers at work: the default one binds pod by pod, another one (KAI's place) whole gangs."""

from typing import Any

from torchctl.api.kube import KAI_PODGROUP, POD
from torchctl.api.names import DEFAULT_SCHEDULER
from torchctl.runtime.kinds import Key
from torchctl.testing.fake.objects import Body, Changed, key_of
from torchctl.testing.gangs import Machine, place
from torchctl.testing.nodekinds import Pod
from torchctl.testing.sim.component import Component
from torchctl.testing.sim.kinds import NODE
from torchctl.testing.sim.reading import read_pod
from torchctl.testing.sim.scheduling import Place, choose, machine, requests
from torchctl.testing.sim.world import World

__all__ = ["Scheduler"]

MANAGER = "kube-scheduler"
DEFAULT, GANGS = "default", "gangs"


class Scheduler(Component):
    """Binds pods to nodes that are ready; in which order those come that found none before is drawn."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "scheduler", 0.01, 0.3)

    def on_change(self, changed: Changed) -> None:
        if (changed.served.kind == POD and _matters(changed)) or changed.served.kind == NODE:
            self.wake(DEFAULT)
            self.wake(GANGS)
        elif changed.served.kind == KAI_PODGROUP:
            self.wake(GANGS)

    def look(self, key: Any) -> None:
        pods = self.world.all(POD)
        places = self._places(pods)
        if key == DEFAULT:
            self._place_singly(pods, places)
        else:
            self._place_gangs(pods, places)

    def _places(self, pods: list[Body]) -> dict[str, Place]:
        places = {node["metadata"]["name"]: machine(node) for node in self.world.all(NODE)}
        for pod in pods:
            node = places.get(pod["spec"].get("nodeName", ""))
            if node is not None and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                node.take(requests(pod))
        return places

    def _place_singly(self, pods: list[Body], places: dict[str, Place]) -> None:
        waiting = [pod for pod in pods if _waits(pod) and pod["spec"]["schedulerName"] == DEFAULT_SCHEDULER]
        waiting.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        refused = [pod for pod in waiting if pod["status"].get("conditions")]
        self.chance.shuffle(refused)  # the real one lets them back off, and takes them as that ends
        for pod in [*refused, *(pod for pod in waiting if pod not in refused)]:
            node, reason = choose(pod, places.values())
            if node is None:
                self._refuse(pod, reason)
            else:
                node.take(requests(pod))
                self._bind(key_of(pod), node.name)

    def _place_gangs(self, pods: list[Body], places: dict[str, Place]) -> None:
        known = [read_pod(pod) for pod in pods]
        groups = {key_of(group): group["spec"]["minMember"] for group in self.world.all(KAI_PODGROUP)}
        machines = [
            Machine(node.name, node.labels, {name: int(amount) for name, amount in node.left.items() if "/" in name})
            for node in places.values()
            if not node.taints
        ]
        bound = {pod.metadata.uid for pod in known if pod.spec.node_name}
        free = [pod for pod in known if pod.metadata.uid not in bound]
        held = _held(known)
        for pod, node in place(free, {key: least - held.get(key, 0) for key, least in groups.items()}, machines):
            self._bind(Key(pod.metadata.namespace, pod.metadata.name), node)

    def _bind(self, key: Key, node: str) -> None:
        self.world.change(POD, key, lambda pod: {**pod, "spec": {**pod["spec"], "nodeName": node}}, MANAGER)

    def _refuse(self, pod: Body, reason: str) -> None:
        conditions = [one for one in pod["status"].get("conditions", ()) if one["type"] != "PodScheduled"]
        known = next((one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"), None)
        if known is not None and known["message"] == reason:
            return
        refused = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": reason,
            "lastTransitionTime": self.world.now if known is None else known["lastTransitionTime"],
        }
        self.world.report(POD, key_of(pod), {**pod["status"], "conditions": [*conditions, refused]}, MANAGER)


def _waits(pod: Body) -> bool:
    return not (
        pod["spec"].get("nodeName")
        or pod["spec"].get("schedulingGates")
        or "deletionTimestamp" in pod["metadata"]
        or pod["status"]["phase"] != "Pending"
    )


def _matters(changed: Changed) -> bool:
    """Tells if a change of a pod makes room, or asks for it."""
    if changed.type != "MODIFIED":
        return True
    assert changed.old is not None
    return bool(changed.old["status"]["phase"] != changed.new["status"]["phase"])


def _held(pods: list[Pod]) -> dict[Key, int]:
    """Returns how many members of each group have a node."""
    found: dict[Key, int] = {}
    for pod in pods:
        group = pod.metadata.annotations.get("pod-group-name")
        if group and pod.spec.node_name and not pod.is_terminal:
            key = Key(pod.metadata.namespace, group)
            found[key] = found.get(key, 0) + 1
    return found
