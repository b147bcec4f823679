"""Server-side apply of children, fenced against the two ways in which an upsert goes wrong.

The decision is `intent.decide`; here is the I/O around it. What it promises beyond the decision:

- the first apply of a child creates it or changes nothing: it names a version that no object has. Only if something is
  there already is it read live, and the decision made again;
- every later apply carries the object's uid, so that a deleted object is a `Conflict` and never comes back;
- what others write fields of that our intent must not name is created in a form of its own, by a field manager of its
  own: a field that we once applied and then left out would be taken away again;
- before an update of a kind with immutable fields these are read live: a struct need not have them.

That an apply with a version creates what does not exist is not documented. A server that refuses it although there is
nothing gets a first apply without a version, which does not force. If its answer shows that somebody else made the
object since the read, our fields are taken out of it again and `ForeignObject` is raised.

The API server answers Conflict if the object is gone, and Invalid (metadata.uid is immutable) if another one has taken
its name. Here both are `Conflict`, because in both cases the object that the decision was about no longer exists.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from torchctl.runtime.drift import DriftDetector
from torchctl.runtime.intent import (
    Decision,
    Operation,
    Ownership,
    decide,
    immutable_fields,
    with_immutable,
)
from torchctl.runtime.kinds import Key, Kind, ManagedFields, Object, ObjectMeta

__all__ = ["Applier", "ApplyResult", "ForeignObject", "StillDeleting"]

T = TypeVar("T", bound=Object)


class ForeignObject(Exception):
    """A child's name is taken by an object that is not ours. That object was left unchanged."""

    def __init__(self, kind: Kind[Any], key: Key) -> None:
        super().__init__(f"{kind.kind} {key} exists and does not belong to this object")
        self.kind = kind
        self.key = key


class StillDeleting(Exception):
    """A child's name is taken by an object that is not ours and is being deleted. Try again when it is gone.

    Attributes:
        finalizers: The finalizers that the deletion waits for; empty if it has not begun.
    """

    def __init__(self, kind: Kind[Any], key: Key, finalizers: Sequence[str] = ()) -> None:
        held = f", and {', '.join(finalizers)} of its finalizers are not done" if finalizers else ""
        super().__init__(f"the earlier {kind.kind} {key} is still being deleted{held}")
        self.kind = kind
        self.key = key
        self.finalizers = (*finalizers,)


class _Manager(ManagedFields, frozen=True, rename="camel"):
    """An entry that the codec does not take away."""


class _ManagedMeta(ObjectMeta, frozen=True, rename="camel", omit_defaults=True):
    managed_fields: tuple[_Manager, ...] = ()


class _Managed(msgspec.Struct, frozen=True):
    metadata: _ManagedMeta


class ApplyResult(msgspec.Struct, frozen=True):
    """The result of one apply: the operation, and the object's metadata after it."""

    operation: Operation
    metadata: ObjectMeta


class Applier:
    """Applies children with one field manager. Sends the full intent, or nothing if nothing would change."""

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client = client
        self._cache = cache
        self._drift = DriftDetector(client.field_manager)

    def unfenced(self) -> "Applier":
        """Returns an applier whose writes need no leadership, for controllers with `leader_elected=False`."""
        return Applier(self._client.unfenced(), self._cache)

    async def apply(
        self,
        kind: Kind[T],
        intent: Mapping[str, Any],
        ours: Ownership,
        *,
        once: bool = False,
        first: Mapping[str, Any] | None = None,
    ) -> ApplyResult:
        """Makes the object exist as `intent` describes it; with `once`, only makes sure that it exists.

        With `first` it is created in that form, as `<field manager>-create`. The next call applies `intent` to it.

        The kind must be registered with the cache. RBAC: get, create and patch on the kind.

        Raises:
            ForeignObject: The name is taken by an object that is not ours.
            StillDeleting: It is taken by one that is being deleted, such as the child of an earlier owner.
            Conflict: The object is no longer the one in the cache, or somebody else has just created it.
            ApiError: The API server refused, or could not be asked.
        """
        return await self.apply_to(self._cache.get(kind, _key(intent)), kind, intent, ours, once=once, first=first)

    async def apply_to(
        self,
        live: T | None,
        kind: Kind[T],
        intent: Mapping[str, Any],
        ours: Ownership,
        *,
        once: bool = False,
        first: Mapping[str, Any] | None = None,
    ) -> ApplyResult:
        """As `apply`, if the object is as `live` says (None: there is none), whatever the cache knows."""
        decision = decide(
            intent,
            None if live is None else live.metadata,
            ours,
            manager=self._client.field_manager,
            once=once,
            drifted=lambda: live is not None and self._drift.drifted(intent, live.metadata),
        )
        match decision:
            case Decision(operation=Operation.FOREIGN):
                raise ForeignObject(kind, _key(intent))
            case Decision(operation=Operation.LEAVING):
                meta = live.metadata if live is not None else ObjectMeta()
                raise StillDeleting(kind, _key(intent), meta.finalizers if meta.deletion_timestamp else ())
            case Decision(operation=Operation.CREATE) if first is not None:
                return await self._create_first(kind, first, intent, partial(self.apply_to, ours=ours, once=once))
            case Decision(operation=Operation.CREATE, body=body) if body is not None:
                return await self._create(kind, intent, body, partial(self.apply_to, ours=ours, once=once))
            case Decision(operation=Operation.UPDATE, body=body) if body is not None:
                return ApplyResult(Operation.UPDATE, self._learn(intent, await self._update(kind, body)))
            case _:
                assert live is not None
                return ApplyResult(decision.operation, live.metadata)

    def _learn(self, intent: Mapping[str, Any], answer: ObjectMeta) -> ObjectMeta:
        self._drift.learn(intent, answer)
        return answer

    async def _create(
        self, kind: Kind[T], intent: Mapping[str, Any], body: Mapping[str, Any], again: "_Again[T]"
    ) -> ApplyResult:
        """Creates the object, or calls `again` with the one that exists."""
        try:
            return ApplyResult(Operation.CREATE, self._learn(intent, await self._send_first(kind, body)))
        except (Conflict, BadRequest, Invalid) as error:
            if not isinstance(error, Conflict) and "resourceVersion" not in error.message:
                raise
        live = await self._read(kind, _key(intent))
        if live is not None:
            return await again(live, kind, intent)
        unversioned = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
        sent = await self._send_first(kind, {**body, "metadata": unversioned})
        return ApplyResult(Operation.CREATE, self._learn(intent, sent))

    async def _create_first(
        self, kind: Kind[T], first: Mapping[str, Any], intent: Mapping[str, Any], again: "_Again[T]"
    ) -> ApplyResult:
        """Creates the object in its first form, or calls `again` with the one that exists."""
        creator = f"{self._client.field_manager}-create"
        try:
            made = await self._client.create(kind, first, field_manager=creator)
        except AlreadyExists:
            live = await self._read(kind, _key(intent))
            if live is None:
                raise
            return await again(live, kind, intent)
        return ApplyResult(Operation.CREATE, made.metadata)

    async def _read(self, kind: Kind[T], key: Key) -> T | None:
        try:
            return await self._client.get(kind, key.name, key.namespace)
        except NotFound:
            return None

    async def _send_first(self, kind: Kind[T], body: Mapping[str, Any]) -> ObjectMeta:
        managed: Kind[_Managed] = replace(kind, type=_Managed, dec_hook=None)  # type: ignore[arg-type, assignment]  # another type
        answer = await self._client.apply(managed, body)
        if any(map(self._is_foreign, answer.metadata.managed_fields)):
            await self._withdraw(managed, answer.metadata, body)
            raise ForeignObject(kind, _key(body))
        return answer.metadata

    def _is_foreign(self, entry: _Manager) -> bool:
        """Tells if the entry shows that somebody else created the object.

        An entry for the status shows nothing: if the answer to our own earlier attempt was lost, a controller may
        have written the status of the object that we created.
        """
        ours = (self._client.field_manager, "Apply")
        return not entry.subresource and (entry.manager, entry.operation) != ours

    async def _update(self, kind: Kind[T], body: Mapping[str, Any]) -> ObjectMeta:
        try:
            updated = await self._client.apply(kind, await self._with_immutable(kind, body), force=True)
        except Invalid as error:
            if "metadata.uid:" not in error.message:
                raise
            raise Conflict(error.message, code=error.code, reason=error.reason, details=error.details) from error
        return updated.metadata

    async def _with_immutable(self, kind: Kind[T], body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns a body with the live object's immutable fields, of which a struct need not have all."""
        if not immutable_fields(body):
            return body
        key = _key(body)
        try:
            live = await self._client.get_raw(kind, key.name, key.namespace)
            return with_immutable(body, live, self._client.field_manager)
        except NotFound as error:
            raise Conflict(error.message, code=error.code, reason=error.reason, details=error.details) from error

    async def _withdraw(self, kind: Kind[_Managed], meta: ObjectMeta, body: Mapping[str, Any]) -> None:
        nothing = {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        }
        await self._client.apply(kind, nothing)


_Again = Callable[[T, Kind[T], Mapping[str, Any]], Awaitable[ApplyResult]]
"""Applies an intent to an object that was read."""


def _key(intent: Mapping[str, Any]) -> Key:
    return Key(intent["metadata"].get("namespace", ""), intent["metadata"]["name"])
