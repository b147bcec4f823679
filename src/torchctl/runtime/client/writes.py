"""Records the writes of a task, so that its successor can wait until the caches have seen them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from torchctl.runtime.kinds import Key, Kind

__all__ = ["Deleted", "Writes", "Written", "note_write", "record_writes", "writes_so_far"]


@dataclass(frozen=True, slots=True)
class Written:
    """An object was created or changed; it now has this version and these labels."""

    kind: Kind[Any]
    key: Key
    uid: str
    resource_version: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object was deleted, or is about to be."""

    kind: Kind[Any]
    key: Key
    uid: str


Writes = list[Written | Deleted]

_writes: ContextVar[tuple[Writes, ...]] = ContextVar("torchctl_writes", default=())


@contextmanager
def record_writes() -> Iterator[Writes]:
    """Collects the successful writes made inside the block, including those of tasks started inside."""
    writes: Writes = []
    token = _writes.set((*_writes.get(), writes))
    try:
        yield writes
    finally:
        _writes.reset(token)


def writes_so_far() -> Writes:
    """Returns the writes that the innermost `record_writes` around the caller has collected."""
    recording = _writes.get()
    return [*recording[-1]] if recording else []


def note_write(write: Written | Deleted) -> None:
    """Records a successful write. The client calls it."""
    for writes in _writes.get():
        writes.append(write)
