"""Decodes and encodes typed objects. One object that does not fit its type never affects the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from torchctl.runtime.client.errors import Malformed
from torchctl.runtime.client.intern import Interner
from torchctl.runtime.client.managed import condense
from torchctl.runtime.kinds import Key, Kind, Object, ObjectMeta, Status

__all__ = [
    "Added",
    "Bookmark",
    "Codec",
    "Deleted",
    "ErrorLine",
    "Modified",
    "Page",
    "Undecodable",
    "WatchLine",
]

T = TypeVar("T", bound=Object)

END_OF_LIST = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the list of a watch with sendInitialEvents (KEP-3157)."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An object that does not fit the type of its kind. Its key has an empty name if not even that could be read."""

    kind: Kind[Any]
    key: Key
    error: str
    uid: str = ""
    resource_version: str = ""
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list.

    Attributes:
        items: The objects, decoded.
        skipped: The objects that could not be decoded.
        resource_version: The version of the whole list; a watch that follows starts from it.
        continue_: Token of the next page, empty on the last one.
    """

    items: tuple[T, ...]
    skipped: tuple[Undecodable, ...] = ()
    resource_version: str = ""
    continue_: str = ""


class Added(msgspec.Struct, Generic[T], frozen=True, gc=False, tag_field="type", tag="ADDED"):
    object: T


class Modified(msgspec.Struct, Generic[T], frozen=True, gc=False, tag_field="type", tag="MODIFIED"):
    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False, tag_field="type", tag="DELETED"):
    """The object is gone (or left the selector); this is its last form."""

    object: T


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing changed up to this version. `initial_events_end`: the list that began the stream is complete."""

    resource_version: str
    initial_events_end: bool = False


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """The server ends the stream with an error, or the line is not of a watch."""

    status: Status


WatchLine = Added[T] | Modified[T] | Deleted[T] | Bookmark | ErrorLine | Undecodable


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class _HeadMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Head(msgspec.Struct, frozen=True):
    metadata: _HeadMeta = _HeadMeta()


_EVENTS: Mapping[str, type[Added[Any] | Modified[Any] | Deleted[Any]]] = {
    "ADDED": Added,
    "MODIFIED": Modified,
    "DELETED": Deleted,
}


class _BookmarkLine(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="BOOKMARK"):
    object: _Head


class _ErrorEvent(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="ERROR"):
    object: Status


class _Decoders:
    """The decoders of one kind: for one object, a list, and watch lines. Each works in one pass over the bytes."""

    def __init__(self, kind: Kind[Any]) -> None:
        self.object = self._of(kind, kind.type)
        type_: Any = kind.type
        self.event = self._of(kind, Added[type_] | Modified[type_] | Deleted[type_] | _BookmarkLine | _ErrorEvent)
        items = ("items", list[kind.type] | None, None)  # type: ignore[name-defined]  # a type known only here
        self.list = self._of(kind, msgspec.defstruct("List", [("metadata", _ListMeta, _ListMeta()), items]))

    def _of(self, kind: Kind[Any], type_: Any) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(type_, dec_hook=kind.dec_hook)


class Codec:
    """Decoders, built once per kind, and the strings that decoded objects share.

    Pages and lines are decoded in one pass. Only if that fails are they split, to find the object that does not fit its
    type.
    """

    def __init__(self) -> None:
        self._decoders: dict[tuple[type[Any], Any], _Decoders] = {}
        self._line = msgspec.json.Decoder(_Line)
        self._list = msgspec.json.Decoder(_List)
        self._head = msgspec.json.Decoder(_Head)
        self._status = msgspec.json.Decoder(Status)
        self._encoder = msgspec.json.Encoder()
        self._intern = Interner()

    def encode(self, body: Any) -> bytes:
        return self._encoder.encode(body)

    def decode(self, kind: Kind[T], body: bytes) -> T:
        """Decodes one object, the answer to a read or write: it is not kept, so it shares nothing.

        Raises:
            Malformed: The object does not fit the kind's type.
        """
        try:
            obj: T = self._decoders_of(kind).object.decode(body)
            condense(obj.metadata)
            return obj
        except Exception as error:
            raise Malformed(f"an answer for {kind.resource} cannot be decoded: {error}") from error

    def metadata(self, body: bytes) -> ObjectMeta:
        """Returns what identifies an object that does not fit its type; empty fields if not even that can be read."""
        head = self._read_head(msgspec.Raw(body))
        return ObjectMeta(head.name, head.namespace, head.uid, head.resource_version, labels=head.labels or {})

    def decode_page(self, kind: Kind[T], body: bytes) -> Page[T]:
        """Decodes a list, object by object.

        Raises:
            Malformed: It is not a list.
        """
        if (whole := self._whole_page(kind, body)) is not None:
            return whole
        try:
            page = self._list.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Malformed(f"a list of {kind.resource} cannot be decoded: {error}") from error
        decoded = [self._attempt(kind, item) for item in page.items or ()]
        return Page(
            items=tuple(item for item in decoded if not isinstance(item, Undecodable)),
            skipped=tuple(item for item in decoded if isinstance(item, Undecodable)),
            resource_version=page.metadata.resource_version,
            continue_=page.metadata.continue_,
        )

    def decode_event(self, kind: Kind[T], line: bytes) -> WatchLine[T]:
        """Decodes one line of a watch; never raises."""
        try:
            event = self._decoders_of(kind).event.decode(line)
        except Exception:  # a kind's own hook may raise anything
            return self._take_apart(kind, line)
        return self._finish(event)

    def decode_events(self, kind: Kind[T], lines: bytes) -> Sequence[WatchLine[T]]:
        """Decodes whole lines of a watch, all in one pass; never raises."""
        try:
            events = self._decoders_of(kind).event.decode_lines(lines)
        except Exception:  # a kind's own hook may raise anything
            return [self.decode_event(kind, line) for line in lines.split(b"\n") if line]
        return [self._finish(event) for event in events]

    def _finish(self, event: Any) -> WatchLine[T]:
        if isinstance(event, _BookmarkLine):
            return _bookmark(event.object.metadata)
        if isinstance(event, _ErrorEvent):
            return ErrorLine(event.object)
        self._intern.share(event.object)
        found: WatchLine[T] = event
        return found

    def _take_apart(self, kind: Kind[T], line: bytes) -> WatchLine[T]:
        """Decodes a line that the single pass could not decode, or returns what is wrong with it."""
        try:
            event = self._line.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _garbage(f"no watch event but {line[:200]!r}: {error}")
        wrap = _EVENTS.get(event.type)
        if wrap is not None:
            obj = self._attempt(kind, event.object, deleted=wrap is Deleted)
            return obj if isinstance(obj, Undecodable) else wrap(obj)
        if event.type == "BOOKMARK":
            return _bookmark(self._read_head(event.object))
        if event.type == "ERROR":
            return self._error(event.object)
        return _garbage(f"a watch event of the unknown type {event.type!r}")

    def _attempt(self, kind: Kind[T], raw: msgspec.Raw, *, deleted: bool = False) -> T | Undecodable:
        try:
            return self._object(kind, raw)
        except Exception as error:  # a kind's own hook may raise anything
            head = self._read_head(raw)
            key = Key(head.namespace, head.name)
            return Undecodable(kind, key, str(error), head.uid, head.resource_version, deleted)

    def _object(self, kind: Kind[T], body: msgspec.Raw) -> T:
        obj: T = self._decoders_of(kind).object.decode(body)
        self._intern.share(obj)
        return obj

    def _whole_page(self, kind: Kind[T], body: bytes) -> Page[T] | None:
        try:
            page = self._decoders_of(kind).list.decode(body)
        except Exception:  # a kind's own hook may raise anything
            return None
        items: tuple[T, ...] = tuple(page.items or ())
        for item in items:
            self._intern.share(item)
        return Page(items, (), page.metadata.resource_version, page.metadata.continue_)

    def _decoders_of(self, kind: Kind[Any]) -> _Decoders:
        decoders = self._decoders.get((kind.type, kind.dec_hook))
        if decoders is None:
            decoders = self._decoders[kind.type, kind.dec_hook] = _Decoders(kind)
        return decoders

    def _read_head(self, raw: msgspec.Raw) -> _HeadMeta:
        try:
            return self._head.decode(raw).metadata
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _HeadMeta()

    def _error(self, raw: msgspec.Raw) -> ErrorLine:
        try:
            return ErrorLine(self._status.decode(raw))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _garbage(f"an ERROR event that cannot be decoded: {error}")


def _bookmark(meta: _HeadMeta) -> Bookmark:
    return Bookmark(meta.resource_version, (meta.annotations or {}).get(END_OF_LIST) == "true")


def _garbage(message: str) -> ErrorLine:
    # 502, as a gateway would answer, because the line does not come from the API server.
    return ErrorLine(Status(502, "Malformed", message))
