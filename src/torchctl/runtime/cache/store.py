"""The objects of one informer: a writer that takes the watch's events, and a reader for everybody else.

Rules of the writer:
- The items of a list are held back until the list is complete, then compared with the cache. The differences come out
  as changes one at a time, so that the shell can pause between them. Objects that the list did not name are deleted,
  which makes up for deletes that the watch missed.
- A deletion counts if its version is at least the cached one: that of an object as it was last, or a newer one.
- Of two versions of one uid, the one with the higher resourceVersion stays. A uid that is gone does not come back.
- The same name with another uid is a delete and an add.
- An object that can no longer be decoded keeps its last good form, because it still exists; it goes when the server
  says that it went, or when its uid changes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, Generic, TypeVar

from torchctl.runtime.cache.change import Change
from torchctl.runtime.cache.detector import MutationDetector
from torchctl.runtime.cache.index import Indexes, IndexFunction
from torchctl.runtime.client.codec import Undecodable
from torchctl.runtime.kinds import Key, Kind, Object, key_of
from torchctl.runtime.watch.core import number
from torchctl.runtime.watch.events import Absent, Applied, Init, InitDone, Removed, Skipped, StoreEvent

__all__ = ["Store", "StoreReader"]

T = TypeVar("T", bound=Object)
U = TypeVar("U")


class StoreReader(Generic[T]):
    """Reads the cached objects. They are immutable and shared: nothing is copied."""

    def __init__(self, kind: Kind[T], indexes: Mapping[str, IndexFunction] | None = None) -> None:
        self._kind = kind
        # Nested rather than keyed by Key: no tuple is kept per object, and a namespace is listed without a scan.
        self._objects: dict[str, dict[str, T]] = {}
        self._indexes: Indexes[T] = Indexes(indexes or {})
        self._count = 0
        self._undecodable: dict[Key, Undecodable] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(objects.values() for objects in self._objects.values())

    def get(self, key: Key) -> T | None:
        return self._objects.get(key[0], {}).get(key[1])

    def all_keys(self) -> Iterator[Key]:
        """Returns the keys of what is cached now; they may be read over hours, while the cache changes.

        Only names are copied at once: 100,000 keys made in one go would hold the event loop up for 0.2 s.
        """
        names = [(namespace, (*objects,)) for namespace, objects in self._objects.items()]
        return (Key(namespace, name) for namespace, found in names for name in found)

    def list(self, namespace: str | None = None) -> tuple[T, ...]:
        """Returns all objects, or those of one namespace, in no particular order."""
        if namespace is None:
            return (*self,)
        return (*self._objects.get(namespace, {}).values(),)

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """Returns the objects that have `value` in the index `name`, in no particular order.

        Raises:
            KeyError: There is no index of that name.
        """
        return (*self._indexes[name].find(value),)

    @property
    def undecodable(self) -> Mapping[Key, Undecodable]:
        """Objects on the server that cannot be decoded now; an earlier good form may still be cached."""
        return self._undecodable


QUIET_STEPS = 16
"""The number of objects without a change that count as one step."""


@dataclass(slots=True)
class _Staging(Generic[T]):
    """The items of a list that is not complete yet."""

    objects: dict[Key, T] = field(default_factory=dict)
    skipped: dict[Key, Undecodable] = field(default_factory=dict)


class Store(StoreReader[T]):
    """Writes the cached objects. Only an informer holds one."""

    watched: ClassVar[MutationDetector | None] = None
    """Set in tests, to find code that changes cached objects."""

    def __init__(self, kind: Kind[T], indexes: Mapping[str, IndexFunction] | None = None) -> None:
        super().__init__(kind, indexes)
        self._staging: _Staging[T] | None = None
        self._filled = False

    @property
    def is_listing(self) -> bool:
        """True while a list is under way, so that its items are held back."""
        return self._staging is not None

    def add_index(self, name: str, function: IndexFunction) -> None:
        if name not in self._indexes:
            self._indexes.add(name, function, ((key_of(obj), obj) for obj in self))

    def feed(self, event: StoreEvent[T]) -> Iterator[Change[T]]:
        """Applies an event and yields its changes. A change is made only when it is yielded: exhaust the iterator."""
        return (change for change in self.steps(event) if change is not None)

    def steps(self, event: StoreEvent[T]) -> Iterator[Change[T] | None]:
        """As `feed`, with a None after some steps that change nothing, for a shell that pauses between steps."""
        match event:
            case Init():
                self._staging = _Staging()
                return iter(())
            case InitDone():
                return self._replace(forced=event.forced)
            case Applied() | Removed() | Skipped() if self._staging is not None:
                self._stage(self._staging, event)
                return iter(())
            case Applied(obj):
                return self._apply(obj)
            case Removed(obj):
                return self._remove(obj)
            case Skipped(what):
                return self._skip(what)
            case Absent():
                return self._clear()
        return iter(())

    # A list that is under way.

    def _stage(self, staging: _Staging[T], event: Applied[T] | Removed[T] | Skipped) -> None:
        match event:
            case Applied(obj):
                key = key_of(obj)
                staging.skipped.pop(key, None)
                staging.objects[key] = obj
            case Removed(obj):
                staging.objects.pop(key_of(obj), None)
                staging.skipped.pop(key_of(obj), None)
            case Skipped(what):
                staging.objects.pop(what.key, None)
                staging.skipped.pop(what.key, None)
                if not what.deleted:
                    staging.skipped[what.key] = what

    def _replace(self, *, forced: bool) -> Iterator[Change[T] | None]:
        staging, self._staging = self._staging or _Staging(), None
        initial, self._filled = not self._filled, True
        self._undecodable = {}
        # An undecodable item without a name could be any object, so no object may be taken for gone.
        is_complete = all(key.name for key in staging.skipped)
        for place, known in enumerate(_drained([*self] if is_complete else [])):
            key = key_of(known)
            if key not in staging.objects and key not in staging.skipped:
                yield from self._put(key, None)
            elif place % QUIET_STEPS == 0:
                yield None
        for what in staging.skipped.values():
            yield from self._skip(what, forced=forced)
        for place, key in enumerate(_drained([*staging.objects])):
            obj = staging.objects.pop(key)
            # The common cases come first: most objects of a first list are new, most of a repeated one unchanged.
            old = self.get(key)
            if old is None:
                yield self._add(key, obj, initial=initial)
            elif not _is_same(obj, old):
                yield from self._apply(obj, initial=initial, forced=forced)
            elif place % QUIET_STEPS == 0:
                yield None

    def _clear(self) -> Iterator[Change[T]]:
        self._staging, self._undecodable = None, {}
        for key in [key_of(obj) for obj in self]:
            yield from self._put(key, None)

    # One object.

    def _apply(self, obj: T, *, initial: bool = False, forced: bool = False) -> Iterator[Change[T]]:
        key = key_of(obj)
        if self._is_marked_after(key, _version(obj)) and not forced:
            return
        self._undecodable.pop(key, None)
        old = self.get(key)
        if old is not None:
            if not (forced and _version(obj) != _version(old)) and not _is_newer(obj, old):
                return
            if old.metadata.uid != obj.metadata.uid:
                yield from self._put(key, None)
        yield from self._put(key, obj, initial=initial)

    def _remove(self, obj: T) -> Iterator[Change[T]]:
        key = key_of(obj)
        old = self.get(key)
        if old is not None and not _is_newer(obj, old) and not _is_same(obj, old):
            return  # the deletion of an earlier object of the same name, or a replay from before it was seen again
        if self._is_marked_after(key, _version(obj)):
            return
        self._undecodable.pop(key, None)
        yield from self._put(key, None)

    def _skip(self, what: Undecodable, *, forced: bool = False) -> Iterator[Change[T]]:
        old = self.get(what.key)
        is_older = old is not None and _is_older(what.resource_version, _version(old))
        if (is_older or self._is_marked_after(what.key, what.resource_version)) and not forced:
            return
        if what.deleted:
            self._undecodable.pop(what.key, None)
        else:
            self._undecodable[what.key] = what
        if what.deleted or (old is not None and what.uid and old.metadata.uid != what.uid):
            yield from self._put(what.key, None)

    def _is_marked_after(self, key: Key, version: str) -> bool:
        """Whether a newer form of the object could not be decoded: what is older tells of before that."""
        mark = self._undecodable.get(key)
        return mark is not None and _is_older(version, mark.resource_version)

    def _put(self, key: Key, new: T | None, *, initial: bool = False) -> Iterator[Change[T]]:
        """Puts `new` (None: nothing) in the place of what is there."""
        old = self.get(key)
        if self.watched is not None:
            self.watched.replace(self._kind.resource, key, old, new)
        if old is None:
            if new is not None:
                yield self._add(key, new, initial=initial)
        elif new is None:
            yield self._discard(key, old)
        else:
            self._objects[key.namespace][key.name] = new
            self._indexes.put(key, new)
            yield Change(self._kind, "updated", old, new)

    def _add(self, key: Key, new: T, *, initial: bool) -> Change[T]:
        self._objects.setdefault(key.namespace, {})[key.name] = new
        self._count += 1
        self._indexes.put(key, new)
        return Change(self._kind, "added", None, new, initial)

    def _discard(self, key: Key, old: T) -> Change[T]:
        objects = self._objects[key.namespace]
        del objects[key.name]
        if not objects:
            del self._objects[key.namespace]
        self._count -= 1
        self._indexes.put(key, None)
        return Change(self._kind, "deleted", old, None)


def _drained(items: list[U]) -> Iterator[U]:
    """Yields the items in order and lets go of each, or all would be freed at once: 50 ms for 100,000 objects."""
    items.reverse()
    while items:
        yield items.pop()


def _is_same(obj: Object, old: Object) -> bool:
    return _version(old) == _version(obj) and old.metadata.uid == obj.metadata.uid


def _version(obj: Object) -> str:
    return obj.metadata.resource_version


def _is_newer(obj: Object, old: Object) -> bool:
    ours, theirs = number(_version(obj)), number(_version(old))
    if ours is None or theirs is None:
        return _version(obj) != _version(old)
    return ours > theirs


def _is_older(version: str, other: str) -> bool:
    """Whether a version is before another; False if they cannot be compared."""
    ours, theirs = number(version), number(other)
    return ours is not None and theirs is not None and ours < theirs
