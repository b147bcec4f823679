"""Claims: each is bound to an empty volume, and kept while a pod uses it."""

from typing import Any

from torchctl.api.kube import POD, PVC
from torchctl.runtime.kinds import Key
from torchctl.testing.fake.objects import Body, Changed, key_of
from torchctl.testing.sim.admission import PVC_PROTECTION
from torchctl.testing.sim.component import Component
from torchctl.testing.sim.world import World

__all__ = ["Volumes"]


class Volumes(Component):
    """The provisioner, the binder and the protection of claims in one."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "volumes", 0.05, 3.0)

    def on_change(self, changed: Changed) -> None:
        if changed.served.kind == PVC:
            self.wake(key_of(changed.new))
        elif changed.served.kind == POD:
            for key in claims_of(changed.new):
                self.wake(key)

    def look(self, key: Any) -> None:
        claim = self.world.find(PVC, key)
        if claim is None:
            return
        if "deletionTimestamp" in claim["metadata"]:
            if not any(key in claims_of(pod) for pod in self.world.all(POD) if _uses(pod)):
                self.world.change(PVC, key, _unprotected)
        elif claim["status"].get("phase") != "Bound":
            self._bind(key, claim)

    def _bind(self, key: Key, claim: Body) -> None:
        name = f"pvc-{claim['metadata']['uid']}"
        self.world.change(PVC, key, lambda old: {**old, "spec": {**old["spec"], "volumeName": name}})
        capacity = claim["spec"].get("resources", {}).get("requests", {})
        modes = claim["spec"].get("accessModes", [])
        self.world.report(PVC, key, {"phase": "Bound", "accessModes": modes, "capacity": capacity})


def claims_of(pod: Body) -> list[Key]:
    """Returns the claims that a pod mounts."""
    sources = (volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes", ()))
    return [Key(pod["metadata"]["namespace"], source["claimName"]) for source in sources if source is not None]


def _uses(pod: Body) -> bool:
    return pod["status"]["phase"] not in ("Succeeded", "Failed")


def _unprotected(claim: Body) -> Body:
    kept = [name for name in claim["metadata"].get("finalizers", ()) if name != PVC_PROTECTION]
    return {**claim, "metadata": {**claim["metadata"], "finalizers": kept}}
