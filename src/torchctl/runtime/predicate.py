"""Predicates select the changes that lead to a reconcile. They compose with `&`, `|` and `~`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchctl.runtime.cache.informer import Change
from torchctl.runtime.kinds import Object

__all__ = ["ALWAYS", "Predicate", "annotations_changed", "generation_changed", "labels_changed", "version_changed"]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A test of a change. The predefined ones test updates only: additions and deletions always pass."""

    test: Callable[[Change[Any]], bool]

    def __call__(self, change: Change[Any]) -> bool:
        return self.test(change)

    def __and__(self, other: "Predicate") -> "Predicate":
        return Predicate(lambda change: self(change) and other(change))

    def __or__(self, other: "Predicate") -> "Predicate":
        return Predicate(lambda change: self(change) or other(change))

    def __invert__(self) -> "Predicate":
        return Predicate(lambda change: not self(change))


def _on_update_of(read: Callable[[Object], object]) -> Predicate:
    def differs(change: Change[Any]) -> bool:
        if change.old is None or change.new is None:
            return True
        return read(change.old) != read(change.new)

    return Predicate(differs)


ALWAYS = Predicate(lambda change: True)

generation_changed = _on_update_of(lambda obj: (obj.metadata.generation, obj.metadata.deletion_timestamp))
"""Passes if the spec changed or deletion began; writes to status do not pass."""

labels_changed = _on_update_of(lambda obj: obj.metadata.labels)

annotations_changed = _on_update_of(lambda obj: obj.metadata.annotations)

version_changed = _on_update_of(lambda obj: obj.metadata.resource_version)
"""Passes if anything changed; a resync or a relist that repeats an object does not pass."""
