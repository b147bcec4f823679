"""What removes objects: the garbage collector, the end of namespaces, and the age of Events."""

from typing import Any

from torchctl.runtime.kinds import EVENT, Key
from torchctl.testing.fake.garbage import collect
from torchctl.testing.fake.objects import Body, Changed, key_of
from torchctl.testing.sim.component import Component
from torchctl.testing.sim.kinds import NAMESPACE
from torchctl.testing.sim.world import World

__all__ = ["Events", "GarbageCollector", "Namespaces"]

EVENTS_S = 3600.0


class GarbageCollector(Component):
    """Deletes the dependents of objects that are gone or going, some time after."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "garbage-collector", 0.02, 1.5)

    def on_change(self, changed: Changed) -> None:
        meta = changed.new["metadata"]
        if (
            changed.type == "DELETED"
            or "deletionTimestamp" in meta
            or (
                changed.type == "ADDED"
                and any(self.world.objects.by_uid(owner["uid"]) is None for owner in meta.get("ownerReferences", ()))
            )
        ):
            self.wake("graph")

    def look(self, key: Any) -> None:
        self.world.server.act(collect)


class Namespaces(Component):
    """Empties namespaces that are being deleted, and lets them go."""

    FINALIZER = "kubernetes"

    def __init__(self, world: World) -> None:
        super().__init__(world, "namespaces", 0.1, 2.0)

    def on_change(self, changed: Changed) -> None:
        meta = changed.new["metadata"]
        if changed.served.kind == NAMESPACE and "deletionTimestamp" in meta:
            self.wake(key_of(changed.new))
        elif changed.type == "DELETED" and meta.get("namespace"):
            self.wake(Key("", meta["namespace"]))

    def look(self, key: Any) -> None:
        namespace = self.world.find(NAMESPACE, key)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        inside = [
            (served.kind, body)
            for served in self.world.server.kinds
            for body in self.world.objects.all(served)
            if body["metadata"].get("namespace") == key.name
        ]
        for kind, body in inside:
            if "deletionTimestamp" not in body["metadata"]:
                self.world.delete(kind, key_of(body))
        if inside:
            self.wake(key, 2.0)
        else:
            self.world.change(NAMESPACE, key, _finished)


class Events(Component):
    """Deletes Events an hour after their creation."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "events", EVENTS_S, EVENTS_S)

    def on_change(self, changed: Changed) -> None:
        if changed.served.kind == EVENT and changed.type == "ADDED":
            self.wake(key_of(changed.new))

    def look(self, key: Any) -> None:
        self.world.delete(EVENT, key)


def _finished(namespace: Body) -> Body:
    kept = [name for name in namespace["metadata"].get("finalizers", ()) if name != Namespaces.FINALIZER]
    return {**namespace, "metadata": {**namespace["metadata"], "finalizers": kept}}
