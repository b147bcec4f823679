"""Values that thousands of cached objects have in common are kept once."""

from datetime import datetime
from typing import Any

import msgspec

from torchctl.runtime.kinds import Object, ObjectMeta

__all__ = ["Interner"]

LIMIT = 65_536
"""Values remembered; beyond it the memory starts afresh, so that a stream of unique ones cannot fill it."""

UNIQUE = frozenset({"uid", "resource_version", "message", "pod_ip"})
"""Fields whose values are hardly ever met twice."""

UNIQUE_OF: dict[type, frozenset[str]] = {ObjectMeta: frozenset({"name"})}

_set = msgspec.structs.force_setattr


class Interner:
    """Makes decoded objects share namespaces, labels, owner references, times, and the words of their conditions.

    Free-form parts of an object (a spec that is kept whole) are left alone.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._fields: dict[type, tuple[str, ...]] = {}
        self._verbal: dict[type, bool] = {}

    def share(self, obj: Object) -> None:
        """Replaces what `obj` has in common with earlier ones. Only for objects that nobody has seen yet."""
        if len(self._known) > LIMIT:
            self._known.clear()
        if isinstance(obj, msgspec.Struct):
            self._walk(obj)

    def _walk(self, obj: msgspec.Struct) -> None:
        known, plan = self._known, self._fields.get(type(obj))
        for name in self._plan(type(obj)) if plan is None else plan:
            value = getattr(obj, name)
            if not value:
                continue
            kind = type(value)
            if kind is str or kind is datetime:
                _set(obj, name, known.setdefault(value, value))
            elif kind is tuple:
                self._walk_tuple(obj, name, value)
            elif kind is dict:
                one, values = known.setdefault, value.values()
                # The values of annotations are as different as the objects are. Map and zip loop in C: twice as fast.
                shared = map(one, values, values) if name == "labels" else values
                _set(obj, name, dict(zip(map(one, value, value), shared, strict=True)))
            elif isinstance(value, msgspec.Struct):
                self._walk(value)

    def _walk_tuple(self, obj: msgspec.Struct, name: str, value: tuple[Any, ...]) -> None:
        first = value[0]
        verbal = self._verbal.get(type(first))
        if verbal is None:
            verbal = self._verbal[type(first)] = _is_verbal(type(first))
        # A message makes a condition one of its kind: then only its words are shared.
        if verbal and not any(getattr(item, "message", "") for item in value):
            _set(obj, name, self._known.setdefault(value, value))
        elif isinstance(first, msgspec.Struct):
            for item in value:
                self._walk(item)

    def _plan(self, type_: type[msgspec.Struct]) -> tuple[str, ...]:
        """The fields of a struct that are worth looking at."""
        unique = UNIQUE | UNIQUE_OF.get(type_, frozenset())
        plan = tuple(
            field.name
            for field in msgspec.structs.fields(type_)
            if field.name not in unique and (field.name in ("labels", "annotations") or not _is_mapping(field.type))
        )
        self._fields[type_] = plan
        return plan


def _is_verbal(type_: type) -> bool:
    """Whether a value of this type is a string, or a struct of nothing but words and flags."""
    if not issubclass(type_, msgspec.Struct):
        return type_ is str
    return all(field.type in (str, bool) for field in msgspec.structs.fields(type_))


def _is_mapping(type_: Any) -> bool:
    return "dict" in str(type_)
