"""Server-side apply of children, fenced against the two ways in which an upsert goes wrong.

The decision is `intent.decide`; here is the I/O around it. What it promises beyond the decision:

- the first apply of a child follows a live read that says NotFound, and does not force;
- should the answer show that the object was somebody else's after all (made between the read and the apply),
  our fields are taken out of it again and `ForeignObject` is raised;
- every later apply carries the object's uid, so that a deleted object is a `Conflict` and never comes back.

The API server says Conflict where the object is gone, and Invalid (metadata.uid is immutable) where another one has
taken its name; here both are `Conflict`, for both mean that what was decided on is no more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import anyio
import msgspec

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, Conflict, Invalid, NotFound
from torchctl.runtime.client.writes import Written, note_write
from torchctl.runtime.intent import Decision, Ownership, Verdict, decide
from torchctl.runtime.kinds import Key, Kind, Object, ObjectMeta

__all__ = ["Applied", "Applier", "ForeignObject", "Found", "StillDeleting"]

T = TypeVar("T", bound=Object)


class ForeignObject(Exception):
    """An object of the name that a child must have exists and is not ours. It was left as it was."""

    def __init__(self, kind: Kind[Any], key: Key) -> None:
        super().__init__(f"{kind.kind} {key} exists and does not belong to this object")
        self.kind = kind
        self.key = key


class StillDeleting(Exception):
    """An object of the name that a child must have, and not ours, is on its way out. The name is free when it is gone.

    Attributes:
        finalizers: Who is waited for, if the deletion has begun.
    """

    def __init__(self, kind: Kind[Any], key: Key, finalizers: Sequence[str] = ()) -> None:
        held = f", and {', '.join(finalizers)} of its finalizers are not done" if finalizers else ""
        super().__init__(f"the earlier {kind.kind} {key} is still being deleted{held}")
        self.kind = kind
        self.key = key
        self.finalizers = (*finalizers,)


class _ManagedField(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    operation: str = ""
    subresource: str = ""


class _ManagedMeta(ObjectMeta, frozen=True, rename="camel", omit_defaults=True):
    managed_fields: tuple[_ManagedField, ...] = ()


class _Managed(msgspec.Struct, frozen=True):
    metadata: _ManagedMeta


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of one apply: the verdict, and the metadata of the object as it now is."""

    verdict: Verdict
    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """What a name stands for: an object, nothing (None), or the reason for which that is not known."""

    live: T | None = None
    error: ApiError | None = None


class Applier:
    """Applies children with one field manager, the full intent each time, and nothing where nothing would change."""

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client = client
        self._cache = cache

    async def look(self, wanted: Sequence[tuple[Kind[Any], Key]]) -> list[Found[Any]]:
        """What is there: of the cache, and of the API server where that has nothing; it is asked for all at once.

        For several children that are applied one after another: none then waits for a read of its own.
        RBAC: get on the kinds.
        """
        found = [Found(self._cache.get(kind, key)) for kind, key in wanted]

        async def ask(number: int) -> None:
            found[number] = await self._read(*wanted[number])

        async with anyio.create_task_group() as tasks:
            for number in (number for number, each in enumerate(found) if each.live is None):
                tasks.start_soon(ask, number)
        return found

    async def apply(
        self,
        kind: Kind[T],
        intent: Mapping[str, Any],
        ours: Ownership,
        *,
        once: bool = False,
        found: Found[T] | None = None,
    ) -> Applied:
        """Makes the object that `intent` describes exist as described, or with `once` just exist.

        The kind must be registered with the cache, and its struct must keep every mutable field that intents
        name. RBAC: get, create and patch on the kind.

        Args:
            found: What `look` found of it. Default: it looks.

        Raises:
            ForeignObject: The name is taken by an object that is not ours.
            StillDeleting: It is taken by one that is being deleted, such as the child of an earlier owner.
            Conflict: The object is no longer the one that the cache has, or somebody made one this very moment.
            ApiError: The API server refused, or could not be asked.
        """
        key = Key(intent["metadata"].get("namespace", ""), intent["metadata"]["name"])
        found = found or (await self.look([(kind, key)]))[0]
        if found.error is not None:
            raise found.error
        live = found.live
        decision = self._decide(intent, live, ours, once)
        match decision:
            case Decision(verdict=Verdict.FOREIGN):
                raise ForeignObject(kind, key)
            case Decision(verdict=Verdict.LEAVING):
                meta = live.metadata if live is not None else ObjectMeta()
                raise StillDeleting(kind, key, meta.finalizers if meta.deletion_timestamp else ())
            case Decision(verdict=Verdict.CREATE, body=body) if body is not None:
                return Applied(Verdict.CREATE, await self._create(kind, key, body))
            case Decision(verdict=Verdict.UPDATE, body=body) if body is not None:
                return Applied(Verdict.UPDATE, await self._update(kind, body))
            case _:
                assert live is not None
                return Applied(decision.verdict, live.metadata)

    def _decide(self, intent: Mapping[str, Any], live: T | None, ours: Ownership, once: bool) -> Decision:
        meta = None if live is None else live.metadata
        return decide(intent, meta, None if live is None else msgspec.to_builtins(live), ours, once=once)

    async def _read(self, kind: Kind[T], key: Key) -> Found[T]:
        try:
            return Found(await self._client.get(kind, key.name, key.namespace))
        except NotFound:
            return Found()
        except ApiError as error:
            return Found(error=error)

    async def _create(self, kind: Kind[T], key: Key, body: Mapping[str, Any]) -> ObjectMeta:
        managed: Kind[_Managed] = replace(kind, type=_Managed, dec_hook=None)  # type: ignore[arg-type, assignment]  # another type
        answer = await self._client.apply(managed, body)
        if any(map(self._is_foreign, answer.metadata.managed_fields)):
            await self._withdraw(managed, answer.metadata, body)
            raise ForeignObject(kind, key)
        # The client noted it as of the kind that shows managers, which no cache has.
        note_write(Written(kind, key, answer.metadata.uid, answer.metadata.resource_version))
        return answer.metadata

    def _is_foreign(self, entry: _ManagedField) -> bool:
        """Whether the entry tells of another maker. A controller that wrote the status may have done so to our own
        earlier attempt, whose answer was lost."""
        ours = (self._client.field_manager, "Apply")
        return not entry.subresource and (entry.manager, entry.operation) != ours

    async def _update(self, kind: Kind[T], body: Mapping[str, Any]) -> ObjectMeta:
        try:
            updated = await self._client.apply(kind, body, force=True)
        except Invalid as error:
            if "metadata.uid:" not in error.message:
                raise
            raise Conflict(error.message, code=error.code, reason=error.reason, details=error.details) from error
        return updated.metadata

    async def _withdraw(self, kind: Kind[_Managed], meta: ObjectMeta, body: Mapping[str, Any]) -> None:
        nothing = {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        }
        await self._client.apply(kind, nothing)
