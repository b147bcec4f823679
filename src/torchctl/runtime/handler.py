"""Maps a change of one object to the keys that must be reconciled."""

from collections.abc import Callable, Iterable
from typing import Any

from torchctl.runtime.cache.informer import Change
from torchctl.runtime.kinds import Kind, Object, controller_of, key_of
from torchctl.runtime.reconcile import Request

__all__ = ["Mapper", "map_to_controller", "map_to_self", "requests_for"]

Mapper = Callable[[Any], Iterable[Request]]
"""Maps a changed object to the keys to reconcile. Called with the object before and after the change."""


def map_to_self(obj: Object) -> Iterable[Request]:
    return (key_of(obj),)


def map_to_controller(owner: Kind[Any]) -> Mapper:
    """Maps a child to the object of kind `owner` that controls it, in any version of that kind's group."""

    def mapper(obj: Object) -> Iterable[Request]:
        ref = controller_of(obj)
        if ref is None or ref.kind != owner.kind or ref.api_version.rpartition("/")[0] != owner.group:
            return ()
        return (Request(obj.metadata.namespace if owner.namespaced else "", ref.name),)

    return mapper


def requests_for(change: Change[Any], mapper: Mapper) -> dict[Request, None]:
    """Returns the keys for the object before and after a change, each once: a child may move between two owners."""
    return {request: None for side in (change.old, change.new) if side is not None for request in mapper(side)}
