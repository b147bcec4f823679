"""The objects of a fake API server, and the rules by which they are created, changed and deleted.

Everything here is in memory and takes no time. A change is one version, and one event for those who watch.
"""

import random
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torchctl.runtime.kinds import Key
from torchctl.testing.fake.forms import Body, check_nulls, empty_in, key_of, spec_of, tidy, timeless, written_part
from torchctl.testing.fake.grace import grace_s_of, later, leaves
from torchctl.testing.fake.ownership import Actor, FieldConflict, applied, updated
from torchctl.testing.fake.rejection import Rejection
from torchctl.testing.fake.served import Served

__all__ = ["Body", "Changed", "Objects", "Rejection", "key_of"]

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

HISTORY = 10_000
"""The number of changes that a watch may resume from."""

FIXED = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
"""Metadata that no update changes."""


@dataclass(frozen=True)
class Changed:
    """One change: the object before and after, as a watch needs them."""

    version: int
    served: Served
    type: EventType
    old: Body | None
    new: Body


GARBAGE = {"foregroundDeletion": "Foreground", "orphan": "Orphan"}
"""The finalizers of the garbage collector, by the propagation policy that sets them."""


class Objects:
    """All objects of all kinds, by kind, namespace and name.

    Attributes:
        latest: The version of the last change of each kind.
        dropped: The version of the last change of each kind that is forgotten.
        listeners: Called with each change.

    Args:
        now: Returns the time in RFC 3339.
        rng: Draws uids and generated names.
    """

    def __init__(self, now: Callable[[], str], rng: random.Random) -> None:
        self.version = 1
        self.compacted = 1
        self.history: deque[Changed] = deque(maxlen=HISTORY)
        self.dry = False
        self.listeners: list[Callable[[Changed], None]] = []
        self.latest: dict[Served, int] = {}
        self.dropped: dict[Served, int] = {}
        self._now = now
        self._rng = rng
        self._objects: dict[Served, dict[Key, Body]] = {}
        self._places: dict[str, tuple[Served, Key]] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        # An apply leaves empty metadata fields in a custom resource as it is stored. They are never shown, but the next
        # write that drops them is a change.
        self._hidden: dict[tuple[Served, Key], frozenset[str]] = {}

    def compact(self) -> None:
        """Forgets all changes so far."""
        self.compacted = self.version
        self.dropped |= self.latest
        self.history.clear()

    # Reading.

    def get(self, served: Served, key: Key) -> Body:
        found = self._of(served).get(key)
        if found is None:
            raise Rejection(404, "NotFound", f'{served.kind.resource} "{key.name}" not found')
        return found

    def find(self, served: Served, key: Key) -> Body | None:
        return self._of(served).get(key)

    def all(self, served: Served) -> list[Body]:
        """Returns the objects of a kind in the order of a list."""
        return [body for _, body in sorted(self._of(served).items())]

    def uids(self) -> list[str]:
        """Returns the uids of all objects, in the order of their creation."""
        return [*self._places]

    def by_uid(self, uid: str) -> tuple[Served, Body] | None:
        place = self._places.get(uid)
        return None if place is None else (place[0], self._of(place[0])[place[1]])

    def dependents(self, uid: str) -> list[tuple[Served, Body]]:
        """Returns the objects with an owner reference to this uid."""
        return [found for child in self._dependents.get(uid, ()) if (found := self.by_uid(child)) is not None]

    def _of(self, served: Served) -> dict[Key, Body]:
        return self._objects.setdefault(served, {})

    # Writing.

    def create(self, served: Served, namespace: str, body: Body, actor: Actor | None) -> Body:
        """Creates an object. Without an actor it has no managedFields, and gets none from updates either."""
        if body.get("metadata", {}).get("resourceVersion"):
            raise Rejection(500, "InternalError", "resourceVersion should not be set on objects to be created")
        meta = {name: value for name, value in body.get("metadata", {}).items() if name != "managedFields"}
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(self._rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        new = tidy(served, {**body, "metadata": meta})
        if self.find(served, Key(namespace, meta["name"])) is not None:
            raise Rejection(409, "AlreadyExists", f'{served.kind.resource} "{meta["name"]}" already exists')
        if actor is not None:
            empty = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {}}
            new = updated(empty, new, actor, served.marks, served.ignored(""), self._now())
        return self._add(served, namespace, new)

    def _add(self, served: Served, namespace: str, body: Body) -> Body:
        new = {name: value for name, value in body.items() if not (served.status and name == "status")}
        meta = {name: value for name, value in body["metadata"].items() if name not in FIXED[2:]}
        meta |= {"uid": str(uuid.UUID(int=self._rng.getrandbits(128), version=4)), "creationTimestamp": self._now()}
        meta |= {"namespace": namespace} if namespace else {}
        meta |= {"generation": 1} if served.generation else {}
        check_nulls(served, new)
        stored = served.admit(None, {**new, "metadata": meta})
        return self._commit(served, None, tidy(served, stored), hidden=empty_in(served, stored))

    def replace(self, served: Served, key: Key, body: Body, actor: Actor) -> Body:
        old = self.get(served, key)
        meta = body.get("metadata", {})
        if meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise _conflict(served, key, "Precondition failed: UID in precondition and in object meta differ")
        if not meta.get("resourceVersion") and not served.builtin:
            raise Rejection(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        return self._update(served, key, old, body, actor.subresource, actor)

    def change(self, served: Served, key: Key, change: Callable[[Body], Body], actor: Actor) -> Body:
        """Replaces an object by what `change` makes of it, which must not change the old one in place."""
        old = self.get(served, key)
        return self._update(served, key, old, change(old), actor.subresource, actor)

    def apply(self, served: Served, key: Key, config: Body, actor: Actor, *, force: bool) -> Body:
        old = self.find(served, key)
        ignored = served.ignored(actor.subresource)
        if config.get("metadata", {}).get("managedFields"):
            raise Rejection(400, "BadRequest", "metadata.managedFields must be nil")
        if old is None and actor.subresource:
            self.get(served, key)
        if old is None and config["metadata"].get("uid"):
            raise _conflict(served, key, "uid mismatch: the provided object specified a uid, and none was found")
        live = old or {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {}}
        try:
            new = applied(live, config, actor, served.marks, ignored, self._now(), force=force)
        except FieldConflict as conflict:
            raise Rejection(409, "Conflict", str(conflict)) from conflict
        if old is None:
            return self._add(served, key.namespace, new)
        return self._update(served, key, old, new, actor.subresource)

    def _update(
        self, served: Served, key: Key, old: Body, body: Body, subresource: str, actor: Actor | None = None
    ) -> Body:
        """Changes an object to `body`. Without an actor, the managedFields of `body` are right already."""
        there, meta = old["metadata"], dict(body.get("metadata", {}))
        if meta.get("resourceVersion") not in (None, "", there["resourceVersion"]):
            raise _conflict(served, key, "the object has been modified; apply your changes to the latest version")
        if not subresource and meta.get("uid") not in (None, "", there["uid"]):
            raise Rejection(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
        meta = {name: value for name, value in meta.items() if name not in FIXED}
        meta |= {name: there[name] for name in (*FIXED, "resourceVersion") if name in there}
        new = {**body, "metadata": meta}
        if actor is not None:
            new = tidy(served, new)
            new = updated(old, new, actor, served.marks, served.ignored(subresource), self._now())
        return self._settle(served, old, written_part(served, old, new, subresource))

    def _settle(self, served: Served, old: Body, stored: Body) -> Body:
        """Stores a changed object; nothing if nothing changed, and removes one that waited for its last finalizer."""
        stored = served.admit(old, stored)
        new = tidy(served, stored)
        meta, before = new["metadata"], set(old["metadata"].get("finalizers", ()))
        if "deletionTimestamp" in meta and set(meta.get("finalizers", ())) - before:
            raise Rejection(422, "Invalid", "metadata.finalizers: Forbidden: none can be added to a deleted object")
        if served.generation and spec_of(new, served) != spec_of(old, served):
            meta["generation"] = old["metadata"].get("generation", 0) + 1
        check_nulls(served, new)
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            self._remove(served, old, new)
            return new
        hidden = empty_in(served, stored)
        if timeless(new) == timeless(old) and hidden == self._hidden.get((served, key_of(old)), frozenset()):
            return old
        return self._commit(served, old, new, hidden=hidden)

    # Deleting.

    def delete(self, served: Served, key: Key, options: Body) -> tuple[Body, bool]:
        """Deletes an object, or marks it if finalizers hold it; returns it, and whether it is gone."""
        old = self.get(served, key)
        meta, wanted = old["metadata"], options.get("preconditions", {})
        for name in ("uid", "resourceVersion"):
            if wanted.get(name, meta[name]) != meta[name]:
                raise _conflict(served, key, f"the {name} in the precondition is not the object's")
        finalizers = [name for name in meta.get("finalizers", ()) if name not in GARBAGE]
        policy = options.get("propagationPolicy", "Background")
        finalizers += [name for name, meant in GARBAGE.items() if meant == policy]
        grace_s = grace_s_of(served, old, options)
        if "deletionTimestamp" in meta and (finalizers or grace_s) and grace_s == meta["deletionGracePeriodSeconds"]:
            return old, False
        if not finalizers and not grace_s:
            return self._remove(served, old, old), True
        began = later(meta["deletionTimestamp"], -meta["deletionGracePeriodSeconds"]) if leaves(old) else self._now()
        changes: Body = {"deletionTimestamp": later(began, grace_s), "deletionGracePeriodSeconds": grace_s}
        changes |= {"finalizers": finalizers} if finalizers else {}
        if "generation" in meta:
            changes["generation"] = meta["generation"] + 1
        return self._commit(served, old, {**old, "metadata": {**meta, **changes}}), False

    def _remove(self, served: Served, old: Body, last: Body) -> Body:
        return self._commit(served, old, last, gone=True)

    def _commit(
        self,
        served: Served,
        old: Body | None,
        new: Body,
        *,
        gone: bool = False,
        hidden: frozenset[str] = frozenset(),
    ) -> Body:
        if self.dry:
            return new
        self.version += 1
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        key = key_of(new)
        self._hidden.pop((served, key), None)
        self._index(served, key, old, None if gone else new)
        if gone:
            del self._of(served)[key]
        else:
            self._of(served)[key] = new
            if hidden:
                self._hidden[served, key] = hidden
        if len(self.history) == HISTORY:
            self.compacted = self.history[0].version
            self.dropped[self.history[0].served] = self.compacted
        type_: EventType = "DELETED" if gone else "ADDED" if old is None else "MODIFIED"
        changed = Changed(self.version, served, type_, old, new)
        self.history.append(changed)
        self.latest[served] = self.version
        for listener in self.listeners:
            listener(changed)
        return new

    def _index(self, served: Served, key: Key, old: Body | None, new: Body | None) -> None:
        for owner in old["metadata"].get("ownerReferences", ()) if old is not None else ():
            self._dependents[owner["uid"]].pop(old["metadata"]["uid"], None)  # type: ignore[index]  # there is one
            if not self._dependents[owner["uid"]]:
                del self._dependents[owner["uid"]]
        if new is None:
            assert old is not None
            del self._places[old["metadata"]["uid"]]
            return
        self._places[new["metadata"]["uid"]] = (served, key)
        for owner in new["metadata"].get("ownerReferences", ()):
            self._dependents.setdefault(owner["uid"], {})[new["metadata"]["uid"]] = None


def _conflict(served: Served, key: Key, message: str) -> Rejection:
    return Rejection(
        409, "Conflict", f'Operation cannot be fulfilled on {served.kind.resource} "{key.name}": {message}'
    )
