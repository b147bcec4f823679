"""The garbage collector of a fake API server: dependents go with their last owner, by the propagation policy."""

from typing import Any

from torchctl.testing.fake.objects import Body, Objects, key_of
from torchctl.testing.fake.ownership import Actor
from torchctl.testing.fake.served import Served

__all__ = ["collect"]

COLLECTOR = Actor("kube-controller-manager")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


def collect(objects: Objects) -> None:
    """Deletes, releases and orphans until there is nothing left to do."""
    while sum(_step(objects, *found) for uid in objects.uids() if (found := objects.by_uid(uid)) is not None):
        pass


def _step(objects: Objects, served: Served, body: Body) -> bool:
    """Does what one object needs. Returns True if that was anything."""
    meta = body["metadata"]
    finalizers = meta.get("finalizers", ())
    if "deletionTimestamp" in meta:
        if ORPHAN in finalizers:
            for dependent, child in objects.dependents(meta["uid"]):
                _release(objects, dependent, child, {meta["uid"]})
            return _finish(objects, served, body, ORPHAN)
        if FOREGROUND in finalizers:
            return _delete_dependents(objects, served, body)
        return False
    owners = meta.get("ownerReferences", ())
    states = {owner["uid"]: _state(objects, owner["uid"], meta.get("namespace", "")) for owner in owners}
    if not owners or ((solid := "solid" in states.values()) and set(states.values()) == {"solid"}):
        return False
    if solid:
        return _release(objects, served, body, {uid for uid, state in states.items() if state != "solid"})
    waits = "waiting" in states.values() and any(objects.dependents(meta["uid"]))
    objects.delete(served, key_of(body), {"propagationPolicy": "Foreground" if waits else _policy(finalizers)})
    return True


def _delete_dependents(objects: Objects, served: Served, body: Body) -> bool:
    uid = body["metadata"]["uid"]
    if any(_step(objects, *dependent) for dependent in objects.dependents(uid)):
        return True  # all dependents come before their owner, those that do not block it too
    blocking = [
        (dependent, child)
        for dependent, child in objects.dependents(uid)
        if any(
            owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in child["metadata"]["ownerReferences"]
        )
    ]
    if not blocking:
        return _finish(objects, served, body, FOREGROUND)
    return False  # the dependents have a step of their own


def _state(objects: Objects, uid: str, namespace: str) -> str:
    found = objects.by_uid(uid)
    if found is None or found[1]["metadata"].get("namespace", "") not in ("", namespace):
        return "absent"
    meta = found[1]["metadata"]
    return "waiting" if "deletionTimestamp" in meta and FOREGROUND in meta.get("finalizers", ()) else "solid"


def _release(objects: Objects, served: Served, body: Body, owners: set[str]) -> bool:
    def released(old: Body) -> Body:
        kept = [owner for owner in old["metadata"]["ownerReferences"] if owner["uid"] not in owners]
        meta: dict[str, Any] = {name: value for name, value in old["metadata"].items() if name != "ownerReferences"}
        return {**old, "metadata": meta | ({"ownerReferences": kept} if kept else {})}

    objects.change(served, key_of(body), released, COLLECTOR)
    return True


def _finish(objects: Objects, served: Served, body: Body, finalizer: str) -> bool:
    def finished(old: Body) -> Body:
        kept = [name for name in old["metadata"]["finalizers"] if name != finalizer]
        return {**old, "metadata": old["metadata"] | {"finalizers": kept}}

    objects.change(served, key_of(body), finished, COLLECTOR)
    return True


def _policy(finalizers: Any) -> str:
    return "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
