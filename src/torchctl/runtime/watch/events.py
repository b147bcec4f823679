"""The actions that the watch machine requests from its shell, and its events for the store."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from torchctl.runtime.client.codec import Undecodable
from torchctl.runtime.kinds import Object

__all__ = [
    "Absent",
    "Action",
    "Applied",
    "Available",
    "Bookmarked",
    "Init",
    "InitDone",
    "ListPage",
    "OpenWatch",
    "Removed",
    "Skipped",
    "StoreEvent",
    "Unavailable",
    "Wait",
]

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class ListPage:
    """Request one page of a list, of the newest state if `continue_` is empty."""

    limit: int
    continue_: str = ""


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Open a stream after `resource_version`; with `send_initial_events` it begins with a streaming list."""

    resource_version: str
    send_initial_events: bool
    server_timeout_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a while."""

    seconds: float


Action = ListPage | OpenWatch | Wait


@dataclass(frozen=True, slots=True)
class Init:
    """A list begins: the objects until `InitDone` replace everything."""


class Applied(msgspec.Struct, Generic[T], frozen=True):
    """The object exists in this form."""

    object: T


class Removed(msgspec.Struct, Generic[T], frozen=True):
    """The object is gone; this is its last form."""

    object: T


@dataclass(frozen=True, slots=True)
class Skipped:
    """An object exists (or, if `what.deleted`, no longer does) that cannot be decoded."""

    what: Undecodable


@dataclass(frozen=True, slots=True)
class InitDone:
    """The list is complete: objects that it did not name are gone.

    `forced` says that versions went back for good (etcd restored from a backup), so older objects replace newer ones.
    """

    resource_version: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Bookmarked:
    """Nothing changed up to this version."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The server does not serve the collection (`missing`: 404), or refuses us (401, 403). The watch keeps trying."""

    reason: str
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Available:
    """A stream is open after a refusal. A list alone does not say so: who may list may not be allowed to watch."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The server has answered 404 several times in a row, so the collection and its objects are gone."""


StoreEvent = Init | Applied[T] | Removed[T] | Skipped | InitDone | Bookmarked | Unavailable | Available | Absent
