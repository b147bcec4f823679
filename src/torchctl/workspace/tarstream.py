"""Parses and writes tar streams without files or sockets, in bounded memory.

`tarfile` reads a header extension of any announced size into memory and knows a dozen kinds of members; the streams
here come from git and from our own server, or from an attacker in its place. So only files, directories, symbolic
links, and extensions of at most 64 KiB are accepted. Feed the received bytes to `TarParser`.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from .core import Kind, Limits, Member, parts_of, show
from .errors import Refused

__all__ = ["END", "TarParser", "padding", "tar_header"]

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
MAX_EXTENSION = 64 * 1024
MAX_MTIME = 2**33

_KINDS: dict[bytes, Kind] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "link",
}
_EXTENSIONS = {
    tarfile.GNUTYPE_LONGNAME: "path",
    tarfile.GNUTYPE_LONGLINK: "linkpath",
    tarfile.XHDTYPE: "pax",
    tarfile.XGLTYPE: "global",
}
_PAX_KEYS = ("path", "linkpath", "size")
_SPARSE = "GNU.sparse"
_TYPES: dict[Kind, bytes] = {"file": tarfile.REGTYPE, "directory": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}


def tar_header(member: Member) -> bytes:
    """Return the header blocks of a member (GNU format); the same member always gives the same bytes."""
    info = tarfile.TarInfo(member.path)
    info.type = _TYPES[member.kind]
    info.size, info.mode, info.mtime, info.linkname = member.size, member.mode, member.mtime, member.target
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> int:
    """Return the number of zero bytes that follow a file of this size."""
    return -size % BLOCK


@dataclass
class _Extension:
    name: str
    left: int
    data: bytearray = field(default_factory=bytearray)


class TarParser:
    """Turns the bytes of a tar stream into members and their content.

    `feed(data)` yields a `Member` for each entry, then its content as `bytes`; `ended` is true once the archive's
    end mark was read. A stream that ends before that was cut off, even if the connection ended regularly.
    """

    def __init__(self, limits: Limits) -> None:
        self.ended = False
        self._limits = limits
        self._buffer = bytearray()
        self._left = 0  # bytes of the current file's content still to come
        self._skip = 0  # padding still to come
        self._extension: _Extension | None = None
        self._overrides: dict[str, str] = {}

    def feed(self, data: bytes) -> Iterator[Member | bytes]:
        """Parse the next bytes of the stream.

        Raises:
            Refused: this is no tar stream, or it has members or extensions that a workspace must not contain.
        """
        view = memoryview(data)
        while len(view) and not self.ended:
            view = view[self._drop(len(view)) :]
            if self._left and len(view):
                part = bytes(view[: self._left])
                self._left -= len(part)
                view = view[len(part) :]
                yield part
            elif len(view):
                take = BLOCK - len(self._buffer)
                self._buffer += view[:take]
                view = view[take:]
                if len(self._buffer) == BLOCK:
                    yield from self._block(bytes(self._buffer))
                    self._buffer.clear()

    def _drop(self, available: int) -> int:
        if self._left:
            return 0
        dropped = min(self._skip, available)
        self._skip -= dropped
        return dropped

    def _block(self, block: bytes) -> Iterator[Member]:
        if self._extension is not None:
            self._extend(self._extension, block)
            return
        if not any(block):
            self.ended = True
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise Refused(f"the stream is not a tar archive ({error})") from None
        if info.type in _EXTENSIONS:
            self._begin_extension(info)
        else:
            yield self._member(info)

    def _begin_extension(self, info: tarfile.TarInfo) -> None:
        if not 0 < info.size <= MAX_EXTENSION:
            raise Refused(f"the archive has a header extension of {info.size} bytes")
        self._extension = _Extension(_EXTENSIONS[info.type], info.size)

    def _extend(self, extension: _Extension, block: bytes) -> None:
        extension.data += block[: extension.left]
        extension.left -= min(BLOCK, extension.left)
        if extension.left:
            return
        self._extension = None
        if extension.name == "pax":
            self._overrides.update(_known(_pax(bytes(extension.data))))
        elif extension.name != "global":
            self._overrides[extension.name] = bytes(extension.data.rstrip(b"\0")).decode("utf-8", "surrogateescape")

    def _member(self, info: tarfile.TarInfo) -> Member:
        overrides, self._overrides = self._overrides, {}
        name = overrides.get("path", info.name)
        kind = _KINDS.get(info.type)
        if kind is None or _SPARSE in overrides:
            raise Refused(f"{show(name)} is of a kind that a workspace cannot have (tar type {info.type!r})")
        if kind == "file" and name.endswith("/"):
            kind = "directory"
        size = _number(overrides.get("size", str(info.size))) if kind == "file" else 0
        self._left, self._skip = size, padding(size)
        return Member(
            parts_of(name, self._limits),
            kind,
            mode=info.mode & 0o777,
            size=size,
            target=overrides.get("linkpath", info.linkname) if kind == "link" else "",
            mtime=min(max(int(info.mtime), 0), MAX_MTIME),
        )


def _known(records: dict[str, str]) -> dict[str, str]:
    """Keep only the known records of a pax header, because any number of headers may precede a member."""
    known = {key: records[key] for key in _PAX_KEYS if key in records}
    return known | ({_SPARSE: ""} if any(key.startswith(_SPARSE) for key in records) else {})


def _pax(data: bytes) -> dict[str, str]:
    """Parse the records `<length> <key>=<value>\\n` of a pax header."""
    records: dict[str, str] = {}
    while data:
        digits, _, _ = data.partition(b" ")
        length = _number(digits.decode("ascii", "replace"))
        record, data = data[len(digits) + 1 : length], data[length:]
        key, equals, value = record.partition(b"=")
        if length <= len(digits) + 1 or not equals or not value.endswith(b"\n"):
            raise Refused("the archive has a broken pax header")
        records[key.decode("utf-8", "surrogateescape")] = value[:-1].decode("utf-8", "surrogateescape")
    return records


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise Refused(f"the archive has a broken number {show(text)}")
    return int(text)
