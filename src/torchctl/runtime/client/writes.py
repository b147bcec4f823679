"""Records the writes of a task, so that its successor can wait until the caches have seen them."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import msgspec

from torchctl.runtime.kinds import Key, Kind

__all__ = ["Deleted", "Writes", "Written", "note_write", "record_writes", "writes_so_far"]


class Written(msgspec.Struct, frozen=True):
    """An object was created or changed; it now has this version and these labels."""

    kind: Kind[Any]
    key: Key
    uid: str
    resource_version: str
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)


class Deleted(msgspec.Struct, frozen=True):
    """An object was deleted, or is about to be."""

    kind: Kind[Any]
    key: Key
    uid: str


Writes = list[Written | Deleted]

_writes: ContextVar[tuple[Writes, ...]] = ContextVar("torchctl_writes", default=())


class record_writes:  # noqa: N801  # it is used like a function
    """Collects the successful writes made inside the block, including those of tasks started inside."""

    __slots__ = ("_token",)

    def __enter__(self) -> Writes:
        writes: Writes = []
        self._token = _writes.set((*_writes.get(), writes))
        return writes

    def __exit__(self, *_: object) -> None:
        _writes.reset(self._token)


def writes_so_far() -> Writes:
    """Returns the writes that the innermost `record_writes` around the caller has collected."""
    recording = _writes.get()
    return [*recording[-1]] if recording else []


def note_write(write: Written | Deleted) -> None:
    """Records a successful write. The client calls it."""
    for writes in _writes.get():
        writes.append(write)
