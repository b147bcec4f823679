"""What the control plane does about nodes that do not answer: taints, evictions, and pods of nodes that are gone."""

from typing import Any

from torchctl.api.kube import POD
from torchctl.testing.fake.objects import Body, Changed, key_of
from torchctl.testing.sim.component import Component
from torchctl.testing.sim.kinds import NODE
from torchctl.testing.sim.scheduling import tolerates
from torchctl.testing.sim.world import World

__all__ = ["UNREACHABLE", "NodeLifecycle", "mark"]

UNREACHABLE = "node.kubernetes.io/unreachable"


class NodeLifecycle(Component):
    """Evicts pods from tainted nodes after their toleration, and removes those whose node is gone."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "node-lifecycle", 0.1, 2.0)
        self._tainted_s: dict[str, float] = {}

    def on_change(self, changed: Changed) -> None:
        if changed.served.kind == NODE:
            self.wake(changed.new["metadata"]["name"])
        elif changed.served.kind == POD and changed.type == "MODIFIED" and changed.new["spec"].get("nodeName"):
            assert changed.old is not None
            if not changed.old["spec"].get("nodeName"):
                self.wake(changed.new["spec"]["nodeName"])

    def look(self, key: Any) -> None:
        node = next((one for one in self.world.all(NODE) if one["metadata"]["name"] == key), None)
        pods = [pod for pod in self.world.all(POD) if pod["spec"].get("nodeName") == key]
        if node is None:
            for pod in pods:
                self._collect(pod)
            return
        taints = [one for one in node.get("spec", {}).get("taints", ()) if one["effect"] == "NoExecute"]
        if not taints:
            self._tainted_s.pop(key, None)
            return
        since_s = self._tainted_s.setdefault(key, self.world.now_s)
        for pod in pods:
            self._unready(pod)
            self._evict(pod, taints, since_s)

    def _unready(self, pod: Body) -> None:
        conditions = pod["status"].get("conditions", ())
        if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
            unready = [
                one | {"status": "False", "lastTransitionTime": self.world.now} if one["type"] == "Ready" else one
                for one in conditions
            ]
            self.world.report(POD, key_of(pod), {**pod["status"], "conditions": unready})

    def _evict(self, pod: Body, taints: list[Body], since_s: float) -> None:
        tolerations = pod["spec"].get("tolerations", ())
        if "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] in ("Succeeded", "Failed"):
            return
        left_s = _left_s(tolerations, taints, since_s - self.world.now_s)
        if left_s is None:
            return
        if left_s > 0:
            self.wake(pod["spec"]["nodeName"], left_s)
            return
        self._disrupt(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        self.world.delete(POD, key_of(pod))

    def _collect(self, pod: Body) -> None:
        """Removes a pod whose node is gone, as the pod garbage collector does."""
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            self._disrupt(pod, "DeletionByPodGC", "PodGC: node no longer exists", phase="Failed")
        self.world.delete(POD, key_of(pod), gracePeriodSeconds=0)

    def _disrupt(self, pod: Body, reason: str, message: str, **status: str) -> None:
        current = self.world.find(POD, key_of(pod))
        assert current is not None
        others = [one for one in current["status"].get("conditions", ()) if one["type"] != "DisruptionTarget"]
        mine = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": self.world.now,
        }
        self.world.report(POD, key_of(pod), {**current["status"], **status, "conditions": [*others, mine]})


def mark(world: World, name: str, *, answers: bool) -> None:
    """Sets a node's Ready condition and its taints, as the node lifecycle controller does once it is silent."""
    node = next(one for one in world.all(NODE) if one["metadata"]["name"] == name)
    ready = {"type": "Ready", "status": "True" if answers else "Unknown", "lastTransitionTime": world.now}
    taints = [{"key": UNREACHABLE, "effect": effect, "timeAdded": world.now} for effect in ("NoSchedule", "NoExecute")]
    world.report(NODE, key_of(node), {**node["status"], "conditions": [ready]})
    spec = {} if answers else {"taints": taints}
    world.change(NODE, key_of(node), lambda old: {**old, "spec": spec})


def _left_s(tolerations: Any, taints: list[Body], age_s: float) -> float | None:
    """Returns the seconds until the first of these taints evicts a pod; None if it tolerates all for ever."""
    left: list[float] = []
    for taint in taints:
        fitting = [one for one in tolerations if tolerates([one], taint)]
        if not fitting:
            left.append(0.0)
        left += [one["tolerationSeconds"] + age_s for one in fitting if "tolerationSeconds" in one]
    return min(left, default=None)
