"""Owners, finalizers and differences of objects: what most reconcilers need besides apply."""

from collections.abc import Mapping
from typing import Any, TypeVar

from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import Kind, Object, ObjectMeta

__all__ = ["add_finalizer", "difference", "owner_reference", "remove_finalizer"]

T = TypeVar("T", bound=Object)


def owner_reference(kind: Kind[Any], meta: ObjectMeta, *, controller: bool = True) -> dict[str, Any]:
    """Returns the entry of `metadata.ownerReferences` that makes an object a dependent of this one.

    With `controller`, the dependent is a child: `owns` maps it to its owner, and `controlled_by` recognizes it.
    """
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "uid": meta.uid}
    return reference | ({"controller": True, "blockOwnerDeletion": True} if controller else {})


async def add_finalizer(client: Client, kind: Kind[T], obj: T, finalizer: str) -> T:
    """Adds a finalizer to this version of an object; sends nothing if it is there. RBAC: patch.

    Raises:
        Conflict: The object has changed since it was read.
    """
    there = obj.metadata.finalizers
    return obj if finalizer in there else await _set_finalizers(client, kind, obj, [*there, finalizer])


async def remove_finalizer(client: Client, kind: Kind[T], obj: T, finalizer: str) -> T:
    """Removes a finalizer from this version of an object; sends nothing if it is gone. RBAC: patch.

    Raises:
        Conflict: The object has changed since it was read.
    """
    kept = [name for name in obj.metadata.finalizers if name != finalizer]
    return obj if len(kept) == len(obj.metadata.finalizers) else await _set_finalizers(client, kind, obj, kept)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the merge patch that makes `after` of `before`, in their JSON forms; empty if they are equal.

    Lists are replaced as a whole. A null in `after` removes the field.
    """
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := difference(old, value):
                patch[name] = inner
        elif name not in before or value != old:
            patch[name] = value
    return patch


async def _set_finalizers(client: Client, kind: Kind[T], obj: T, finalizers: list[str]) -> T:
    meta = obj.metadata
    patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}
    return await client.merge_patch(kind, meta.name, patch, namespace=meta.namespace)
