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

BUDGET = 8 * 2**20
"""Bytes of shared values. Beyond it all are forgotten, so that a stream of unique values cannot fill the memory."""

LONGEST = 256
"""The longest string that is shared by itself; longer ones hardly repeat."""

ENTRY = 200
"""Bytes that an entry takes besides its text."""

LONGEST_TREE = 16 * 2**10
"""The longest text of applied fields that is shared: it is the same for all children of one form."""

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


class _Known(dict[Any, Any]):
    """Values by themselves, with a count of their bytes. A value that is too long is returned and not kept."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __missing__(self, value: Any) -> Any:
        size = _size(value)
        if size > (LONGEST if isinstance(value, str) else LONGEST_TREE):
            return value
        self.bytes += size + ENTRY
        self[value] = value
        return value


def _size(value: Any) -> int:
    """Returns about how many bytes a string, a time, or a tuple or struct of such takes."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, tuple):
        return sum(map(_size, value))
    return sum(map(_size, msgspec.structs.astuple(value))) if isinstance(value, msgspec.Struct) else 0


class Interner:
    """Makes decoded objects share namespaces, labels, owner references, times, and the words of their conditions.

    The fields to share are derived once per type from their types. The free-form parts of an object (annotations, or a
    spec that is kept whole) are left alone.
    """

    def __init__(self) -> None:
        self._known = _Known()
        self._plans: dict[type, _Plan] = {}

    def share(self, obj: Object) -> None:
        """Replaces values of `obj` by equal ones of earlier objects. Call it before anybody else sees `obj`."""
        if self._known.bytes > BUDGET:
            self._known = _Known()
        condense(obj.metadata)
        if isinstance(obj, msgspec.Struct):
            self._walk(obj)

    def _walk(self, obj: msgspec.Struct) -> None:
        plan, known = self._plan(type(obj)), self._known
        for name in plan.words:
            if value := getattr(obj, name):
                _set(obj, name, known[value])
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
                # A copied dict has no spare capacity, unlike the decoder's.
                _set(obj, name, {known[key]: known[value] for key, value in labels.items()})

    def _share_verbal(self, obj: msgspec.Struct, name: str, value: tuple[msgspec.Struct, ...]) -> None:
        if any(map(_message, value)):
            for item in value:
                self._walk(item)
        else:
            _set(obj, name, self._known[value])

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
