"""Shares equal values among cached objects, so that each is kept in memory once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from torchctl.runtime.client.managed import condense
from torchctl.runtime.kinds import Object, ObjectMeta

__all__ = ["Interner"]

LIMIT = 65_536
"""The number of shared values kept. Beyond it all are dropped, so that a stream of unique values cannot fill it."""

UNIQUE = frozenset({"uid", "resource_version", "message", "pod_ip", "managed_fields"})
"""Fields whose values hardly ever repeat."""

UNIQUE_OF: Mapping[type, frozenset[str]] = {ObjectMeta: frozenset({"name"})}

_set = msgspec.structs.force_setattr
_message = attrgetter("message")


@dataclass(slots=True)
class _Plan:
    """The fields of a struct that are worth sharing, grouped by the type of their values."""

    words: list[str] = field(default_factory=list)
    """Strings, times, and structs and tuples of only words and flags: each is shared as a whole by one look-up."""
    verbal: list[str] = field(default_factory=list)
    """Tuples of such structs that may also have a message, which makes each struct unique."""
    structs: list[str] = field(default_factory=list)
    tuples: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.words, self.verbal, self.structs, self.tuples, self.labels))


class Interner:
    """Makes decoded objects share namespaces, labels, owner references, times, and the words of their conditions.

    The fields to share are derived once per type from their types. The free-form parts of an object (annotations, or a
    spec that is kept whole) are left alone.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._plans: dict[type, _Plan] = {}

    def share(self, obj: Object) -> None:
        """Replaces values of `obj` by equal ones of earlier objects. Call it before anybody else sees `obj`."""
        if len(self._known) > LIMIT:
            self._known.clear()
        condense(obj.metadata)
        if isinstance(obj, msgspec.Struct):
            self._walk(obj)

    def _walk(self, obj: msgspec.Struct) -> None:
        plan, one = self._plan(type(obj)), self._known.setdefault
        for name in plan.words:
            if value := getattr(obj, name):
                _set(obj, name, one(value, value))
        for name in plan.structs:
            if value := getattr(obj, name):
                self._walk(value)
        for name in plan.tuples:
            for item in getattr(obj, name) or ():
                self._walk(item)
        for name in plan.verbal:
            if value := getattr(obj, name):
                self._share_verbal(obj, name, value)
        for name in plan.labels:
            if labels := getattr(obj, name):
                values = labels.values()  # a copied dict has no spare capacity, unlike the decoder's
                _set(obj, name, dict(zip(map(one, labels, labels), map(one, values, values), strict=True)))

    def _share_verbal(self, obj: msgspec.Struct, name: str, value: tuple[msgspec.Struct, ...]) -> None:
        if any(map(_message, value)):
            for item in value:
                self._walk(item)
        else:
            _set(obj, name, self._known.setdefault(value, value))

    def _plan(self, type_: type[msgspec.Struct]) -> _Plan:
        plan = self._plans.get(type_)
        if plan is None:
            plan = self._plans[type_] = _Plan()
            unique = UNIQUE | UNIQUE_OF.get(type_, frozenset())
            for known in msgspec.structs.fields(type_):
                if (
                    known.name not in unique
                    and (group := self._group(plan, known.name, _present(known.type))) is not None
                ):
                    group.append(known.name)
        return plan

    def _group(self, plan: _Plan, name: str, type_: Any) -> list[str] | None:
        """Returns the list of the plan that a field belongs to, None if it is not shared."""
        if name == "labels" and get_origin(type_) is dict:
            return plan.labels
        if type_ in (str, datetime) or _is_verbal(type_):
            return plan.words
        if _is_struct(type_):
            return plan.structs if self._plan(type_) else None
        item: Any = get_args(type_)[0] if get_origin(type_) is tuple else None
        if item is str or _is_verbal(item):
            return plan.words
        if _is_struct(item) and self._plan(item):
            return plan.verbal if _is_verbal(item, messages=True) else plan.tuples
        return None


def _present(type_: Any) -> Any:
    """Returns the type of an optional field's value; the type itself if it is not optional."""
    parts = [part for part in get_args(type_) if part is not type(None)]
    return parts[0] if get_origin(type_) in (Union, UnionType) and len(parts) == 1 else type_


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _is_verbal(type_: Any, *, messages: bool = False) -> bool:
    """Tells if the type is a struct of only words and flags; with `messages`, one word may be free text."""
    if not _is_struct(type_) or not type_.__struct_config__.frozen:
        return False  # a mutable struct has no hash
    fields = msgspec.structs.fields(type_)
    return all(each.type in (str, bool) and (messages or each.name != "message") for each in fields)
