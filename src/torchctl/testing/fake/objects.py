"""The objects of a fake API server, and the rules by which they are created, changed and deleted.

Everything here is in memory and takes no time. A change is one version, and one event for those who watch.
"""

import copy
import random
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torchctl.runtime.kinds import Key
from torchctl.testing.fake.fields import null_in
from torchctl.testing.fake.ownership import Actor, FieldConflict, applied, updated
from torchctl.testing.fake.served import Served

__all__ = ["Body", "Changed", "Objects", "Rejection"]

Body = dict[str, Any]
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


class Rejection(Exception):
    """The API server refuses a request."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class Changed:
    """One change: the object before and after, as a watch needs them."""

    version: int
    served: Served
    type: EventType
    old: Body | None
    new: Body


class Objects:
    """All objects of all kinds, by kind, namespace and name.

    Args:
        now: Returns the time in RFC 3339.
        rng: Draws uids and generated names.
    """

    def __init__(self, now: Callable[[], str], rng: random.Random) -> None:
        self.version = 1
        self.compacted = 1
        self.history: deque[Changed] = deque(maxlen=HISTORY)
        self.dry = False
        self._now = now
        self._rng = rng
        self._objects: dict[Served, dict[Key, Body]] = {}
        # An apply leaves empty metadata fields in a custom resource as it is stored. They are never shown, but the next
        # write that drops them is a change.
        self._hidden: dict[tuple[Served, Key], frozenset[str]] = {}

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

    def everything(self) -> list[tuple[Served, Body]]:
        return [(served, body) for served, bodies in self._objects.items() for body in bodies.values()]

    def _of(self, served: Served) -> dict[Key, Body]:
        return self._objects.setdefault(served, {})

    # Writing.

    def create(self, served: Served, namespace: str, body: Body, actor: Actor) -> Body:
        if body.get("metadata", {}).get("resourceVersion"):
            raise Rejection(500, "InternalError", "resourceVersion should not be set on objects to be created")
        meta = {name: value for name, value in body.get("metadata", {}).items() if name != "managedFields"}
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(self._rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        new = tidy(served, {**body, "metadata": meta})
        if self.find(served, Key(namespace, meta["name"])) is not None:
            raise Rejection(409, "AlreadyExists", f'{served.kind.resource} "{meta["name"]}" already exists')
        empty = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {}}
        return self._add(served, namespace, updated(empty, new, actor, served.marks, served.ignored(""), self._now()))

    def _add(self, served: Served, namespace: str, body: Body) -> Body:
        new = {name: value for name, value in body.items() if not (served.status and name == "status")}
        meta = {name: value for name, value in body["metadata"].items() if name not in FIXED[2:]}
        meta |= {"uid": str(uuid.UUID(int=self._rng.getrandbits(128), version=4)), "creationTimestamp": self._now()}
        meta |= {"namespace": namespace} if namespace else {}
        meta |= {"generation": 1} if served.generation else {}
        check_nulls(served, new)
        stored = {**new, "metadata": meta}
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
        """Applies a patch to an object."""
        old = self.get(served, key)
        return self._update(served, key, old, change(copy.deepcopy(old)), actor.subresource, actor)

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
        return self._settle(served, old, _written_part(served, old, new, subresource))

    def _settle(self, served: Served, old: Body, stored: Body) -> Body:
        """Stores a changed object; nothing if nothing changed, and removes one that waited for its last finalizer."""
        new = tidy(served, stored)
        meta, before = new["metadata"], set(old["metadata"].get("finalizers", ()))
        if "deletionTimestamp" in meta and set(meta.get("finalizers", ())) - before:
            raise Rejection(422, "Invalid", "metadata.finalizers: Forbidden: none can be added to a deleted object")
        if served.generation and _spec(new, served) != _spec(old, served):
            meta["generation"] = old["metadata"].get("generation", 0) + 1
        check_nulls(served, new)
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            self._remove(served, old, new)
            return new
        hidden = empty_in(served, stored)
        if _timeless(new) == _timeless(old) and hidden == self._hidden.get((served, key_of(old)), frozenset()):
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
        if "deletionTimestamp" in meta and finalizers:
            return old, False
        if not finalizers:
            return self._remove(served, old, old), True
        changes: Body = {"finalizers": finalizers, "deletionTimestamp": self._now(), "deletionGracePeriodSeconds": 0}
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
        if gone:
            del self._of(served)[key]
        else:
            self._of(served)[key] = new
            if hidden:
                self._hidden[served, key] = hidden
        if len(self.history) == HISTORY:
            self.compacted = self.history[0].version
        self.history.append(
            Changed(self.version, served, "DELETED" if gone else "ADDED" if old is None else "MODIFIED", old, new)
        )
        return new


def key_of(body: Body) -> Key:
    return Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])


def empty_in(served: Served, body: Body) -> frozenset[str]:
    """Returns the empty metadata fields that are stored."""
    if served.builtin:
        return frozenset()
    return frozenset(name for name, value in body["metadata"].items() if value in ({}, []))


def check_nulls(served: Served, body: Body) -> None:
    """Refuses null where the schema of a custom resource wants a value, as an apply leaves it that takes all out."""
    if not served.builtin and (path := null_in(body, served.schema)):
        raise Rejection(422, "Invalid", f"{path}: Invalid value: null: must be of the type in the schema")


def tidy(served: Served, body: Body) -> Body:
    """Returns the object without the empty fields that the API server drops when it reads one."""
    meta = {name: value for name, value in body["metadata"].items() if value not in ({}, [], None, "")}
    if served.builtin:
        body = {name: value for name, value in body.items() if value not in ({}, [], None)}
    return {**body, "metadata": meta}


GARBAGE = {"foregroundDeletion": "Foreground", "orphan": "Orphan"}
"""The finalizers of the garbage collector, by the propagation policy that sets them."""


def _written_part(served: Served, old: Body, new: Body, subresource: str) -> Body:
    """Returns what an endpoint writes of a change: the status, or all but the status."""
    if subresource:
        managed = {"managedFields": new["metadata"]["managedFields"]} if "managedFields" in new["metadata"] else {}
        kept = {name: value for name, value in old.items() if name != "status"}
        status = {"status": new["status"]} if "status" in new else {}
        return {**kept, **status, "metadata": {**old["metadata"], **managed}}
    if not served.status:
        return new
    kept = {name: value for name, value in new.items() if name != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept


def _spec(body: Body, served: Served) -> Body:
    hidden = ("metadata", "status") if served.status else ("metadata",)
    return {name: value for name, value in body.items() if name not in hidden}


def _timeless(body: Body) -> Body:
    """Returns the object without the times in managedFields, which alone are no change."""
    meta = dict(body["metadata"])
    meta["managedFields"] = [entry | {"time": ""} for entry in meta.get("managedFields", ())]
    return {**body, "metadata": meta}


def _conflict(served: Served, key: Key, message: str) -> Rejection:
    return Rejection(
        409, "Conflict", f'Operation cannot be fulfilled on {served.kind.resource} "{key.name}": {message}'
    )
