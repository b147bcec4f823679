"""A change of one object, as handlers see it."""

from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from torchctl.runtime.kinds import Key, Kind, Object, key_of

__all__ = ["Change", "ChangeType", "Handler"]

T = TypeVar("T", bound=Object)


ChangeType = Literal["added", "updated", "deleted"]


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One change of one object.

    For each uid a handler sees `added`, then any number of `updated`, then `deleted`, and between two uids of one
    name always the `deleted` of the first.
    """

    kind: Kind[T]
    type: ChangeType
    old: T | None
    """The object before; None if it was added."""
    new: T | None
    """The object now; None if it was deleted."""
    initial: bool = False
    """True if the object is not new: it comes from the first list, or from the replay to a late handler."""

    @property
    def object(self) -> T:
        """The object now, or its last form if it was deleted."""
        if self.new is not None:
            return self.new
        assert self.old is not None  # a change has at least one side
        return self.old

    @property
    def key(self) -> Key:
        return key_of(self.object)


class Handler(Protocol[T]):
    """Receives every change, in order. It must not block: it notes the key and returns."""

    def on_event(self, event: "Change[T]", /) -> None: ...
