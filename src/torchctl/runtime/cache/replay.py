"""Tells a late handler of all cached objects, step by step, while the cache goes on changing. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from torchctl.runtime.cache.change import Change
from torchctl.runtime.kinds import Kind, Object

__all__ = ["Replay"]

T = TypeVar("T", bound=Object)


class Replay(Generic[T]):
    """The replay to one handler: each object that is cached at the beginning is told once, as `added`.

    Args:
        kind: The kind of the objects.
        objects: The objects that are cached now.
        tell: Calls the handler.
    """

    def __init__(self, kind: Kind[T], objects: Sequence[T], tell: Callable[[Change[T]], None]) -> None:
        self._kind = kind
        self._objects = objects
        self._tell = tell
        self._told: set[str] = set()

    def steps(self) -> Iterator[None]:
        """Tells of one object at each step."""
        for obj in self._objects:
            if obj.metadata.uid not in self._told:
                self._told.add(obj.metadata.uid)
                self._add(obj)
            yield

    def overtake(self, change: Change[T]) -> None:
        """Makes sure that the object before a change is told. Call it before the handler hears of the change."""
        uid = change.object.metadata.uid
        if uid not in self._told:
            self._told.add(uid)
            if change.old is not None:
                self._add(change.old)

    def _add(self, obj: T) -> None:
        self._tell(Change(self._kind, "added", None, obj, initial=True))
