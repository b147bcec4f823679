"""Finds cached objects by a value computed from them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import structlog

from torchctl.runtime.kinds import Key, Object

__all__ = ["Index", "IndexFunction", "Indexes"]

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Object)

IndexFunction = Callable[[Any], Iterable[str]]
"""Returns the values under which an object is found. Pure: the same object always has the same values."""


class Index(Generic[T]):
    """One named index: value -> the objects that have it.

    The values of an object are kept, and not computed again from its old form, which somebody may have changed.
    """

    def __init__(self, function: IndexFunction) -> None:
        self._function = function
        self._buckets: dict[str, dict[Key, T]] = {}
        self._values_of: dict[Key, tuple[str, ...]] = {}

    def put(self, key: Key, new: T | None) -> None:
        """Puts `new` under `key`, in the place of what is there; None stands for absent."""
        for value in self._values_of.pop(key, ()):
            self._drop(value, key)
        if new is None:
            return
        if values := self._values(new):
            self._values_of[key] = values
        for value in values:
            self._buckets.setdefault(value, {})[key] = new

    def find(self, value: str) -> Iterator[T]:
        return iter(self._buckets.get(value, {}).values())

    def _drop(self, value: str, key: Key) -> None:
        bucket = self._buckets.get(value, {})
        bucket.pop(key, None)
        if not bucket:
            self._buckets.pop(value, None)

    def _values(self, obj: T) -> tuple[str, ...]:
        # If an index function fails on one object, the watch of the other objects must go on.
        try:
            return tuple(self._function(obj))
        except Exception:
            log.exception("index function failed", object_name=obj.metadata.name, namespace=obj.metadata.namespace)
            return ()


class Indexes(Generic[T]):
    """The named indexes of one store."""

    def __init__(self, functions: Mapping[str, IndexFunction]) -> None:
        self._indexes: dict[str, Index[T]] = {name: Index(function) for name, function in functions.items()}

    def __getitem__(self, name: str) -> Index[T]:
        return self._indexes[name]

    def __contains__(self, name: str) -> bool:
        return name in self._indexes

    def add(self, name: str, function: IndexFunction, objects: Iterable[tuple[Key, T]]) -> None:
        """Adds an index over `objects` and all that come later."""
        index: Index[T] = Index(function)
        for key, obj in objects:
            index.put(key, obj)
        self._indexes[name] = index

    def put(self, key: Key, new: T | None) -> None:
        for index in self._indexes.values():
            index.put(key, new)
