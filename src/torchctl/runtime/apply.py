"""Server-side apply of children, fenced against the two ways in which an upsert goes wrong.

The decision is `intent.decide`; here is the I/O around it. What it promises beyond the decision:

- the first apply of a child follows a live read that says NotFound, and does not force;
- if the answer shows that somebody else made the object between the read and the apply, our fields are taken out
  of it again and `ForeignObject` is raised;
- every later apply carries the object's uid, so that a deleted object is a `Conflict` and never comes back.

The API server keeps no trace of some values, such as an empty list. So if its answer to an apply does not cover the
intent, that answer is remembered, and the next apply is compared with it.

The API server answers Conflict if the object is gone, and Invalid (metadata.uid is immutable) if another one has taken
its name. Here both are `Conflict`, because in both cases the object that the decision was about no longer exists.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import anyio
import msgspec

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, Conflict, Invalid, NotFound
from torchctl.runtime.intent import (
    Decision,
    Operation,
    Ownership,
    annotation_of,
    decide,
    immutable_fields,
    is_covered,
)
from torchctl.runtime.kinds import Key, Kind, ManagedFields, Object, ObjectMeta, OwnedFields

__all__ = ["Applier", "ApplyResult", "ForeignObject", "Found", "StillDeleting"]

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


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of one apply: the operation, and the object's metadata after it."""

    operation: Operation
    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The result of looking up a name: an object, None if there is none, or the error that prevented the read."""

    live: T | None = None
    error: ApiError | None = None


ANSWERS = 1024
"""The number of answers that are remembered. A forgotten one costs one write."""


class Applier:
    """Applies children with one field manager. Sends the full intent, or nothing if nothing would change."""

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client = client
        self._cache = cache
        self._answers: dict[tuple[str, str], tuple[OwnedFields, ...]] = {}

    async def look(self, wanted: Sequence[tuple[Kind[Any], Key]]) -> list[Found[Any]]:
        """Looks up objects in the cache and, concurrently, those that the cache lacks at the API server.

        Call it before applying several children one after another, so that none of them waits for its own read.
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
    ) -> ApplyResult:
        """Makes the object exist as `intent` describes it; with `once`, only makes sure that it exists.

        The kind must be registered with the cache. RBAC: get, create and patch on the kind.

        Args:
            found: The result of `look` for this object. By default, `apply` calls it.

        Raises:
            ForeignObject: The name is taken by an object that is not ours.
            StillDeleting: It is taken by one that is being deleted, such as the child of an earlier owner.
            Conflict: The object is no longer the one in the cache, or somebody else has just created it.
            ApiError: The API server refused, or could not be asked.
        """
        key = Key(intent["metadata"].get("namespace", ""), intent["metadata"]["name"])
        found = found or (await self.look([(kind, key)]))[0]
        if found.error is not None:
            raise found.error
        live = found.live
        decision = decide(
            intent,
            None if live is None else live.metadata,
            partial(msgspec.to_builtins, await self._with_json_form(kind, intent, live)),
            ours,
            manager=self._client.field_manager,
            once=once,
            answered=None if live is None else self._answers.get(self._state(live.metadata)),
        )
        match decision:
            case Decision(operation=Operation.FOREIGN):
                raise ForeignObject(kind, key)
            case Decision(operation=Operation.LEAVING):
                meta = live.metadata if live is not None else ObjectMeta()
                raise StillDeleting(kind, key, meta.finalizers if meta.deletion_timestamp else ())
            case Decision(operation=Operation.CREATE | Operation.UPDATE as operation, body=body) if body is not None:
                sent = self._create(kind, key, body) if live is None else self._update(kind, body)
                return ApplyResult(operation, self._remember(intent, await sent))
            case _:
                assert live is not None
                return ApplyResult(decision.operation, live.metadata)

    async def _with_json_form(
        self, kind: Kind[T], intent: Mapping[str, Any], live: T | None
    ) -> T | dict[str, Any] | None:
        """Returns the live object; read anew if its immutable fields are needed and are of a type with a hook."""
        if live is None or kind.dec_hook is None or not immutable_fields(intent):
            return live
        return await self._client.get_raw(kind, live.metadata.name, live.metadata.namespace)

    def _remember(self, intent: Mapping[str, Any], answer: ObjectMeta) -> ObjectMeta:
        if not is_covered(intent, answer, self._client.field_manager):
            self._answers[self._state(answer)] = answer.applied
            if len(self._answers) > ANSWERS:
                del self._answers[next(iter(self._answers))]
        return answer

    def _state(self, meta: ObjectMeta) -> tuple[str, str]:
        """Names an object with the intent that was applied to it last."""
        return meta.uid, meta.annotations.get(annotation_of(self._client.field_manager), "")

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
