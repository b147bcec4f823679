"""Condenses metadata.managedFields, half of an object's size, to what server-side apply needs of it."""

import re

import msgspec

from torchctl.runtime.kinds import ManagedFields, ObjectMeta, OwnedFields

__all__ = ["condense"]

UID = re.compile(rb'(?<=k:\{\\"uid\\":\\")[^"\\]+')
"""The uid of an owner reference in a fieldsV1 tree."""

_set = msgspec.structs.force_setattr


def condense(meta: ObjectMeta) -> None:
    """Keeps the entries of managers that apply the object itself, and drops the others. Changes `meta` in place."""
    entries = meta.managed_fields
    if not entries:
        return
    _set(meta, "applied", tuple(_applied(one) for one in entries if one.operation == "Apply" and not one.subresource))
    if type(entries[0]) is ManagedFields:
        _set(meta, "managed_fields", ())


def _applied(entry: ManagedFields) -> OwnedFields:
    return OwnedFields(entry.manager, UID.sub(b"", bytes(entry.fields_v1)).decode())
