"""One upload on the receiver's side, without its network: what is missing, what has arrived, what is put in place.

Content arrives as one stream: the missing files, one after another, in the order of the manifest. It is written into
the staged tree, or its pack, at once, so the offset in the stream is all that a broken connection leaves to be
remembered. Everything that is read again (the manifest) is read from disk, so memory does not grow with the bytes of a
tree. All that was sent is written when the end of the stream is answered.

Calls block on the disk: make them in a worker thread, one at a time.
"""

import hashlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .core import Limits, Member, show
from .errors import Refused
from .manifest import EMPTY, Entry, checked, entries
from .marker import Marker
from .packed import Layout, Packing
from .present import look
from .staging import Staging
from .tree import CHUNK, open_member
from .unpacking import Unpacking

if TYPE_CHECKING:
    from .store import Pack, Place, Store

__all__ = ["Incoming"]


class Incoming:
    """An upload of the tree whose manifest is at `manifest`, into an opened staging area.

    Args:
        tree: the SHA-256 of the manifest, in hexadecimal.
        store: what it has need not be sent, and what is sent is added to it.
        packed: nobody looks at files on the claim, so the tree is written as one file.

    Raises:
        Refused: the manifest has something that a workspace must not contain.
    """

    def __init__(
        self,
        tree: str,
        manifest: Path,
        staging: Staging,
        *,
        limits: Limits,
        store: "Store | None" = None,
        packed: bool = False,
    ) -> None:
        self.tree = tree
        self.missing: list[int] = []
        self.offset = self.size = self.files = self.bytes = 0
        self._manifest = manifest
        self._staging = staging
        self._limits = limits
        self._store = store
        self._present = look(staging.root, manifest, limits)
        self._kept = bytearray()
        self._stored: dict[bytes, Place] = {}
        self._copied: dict[bytes, Member | None] = {}
        self._pack: Pack | None = None
        try:
            self._target = self._begin(Layout() if packed else None)
        except BaseException:
            self._close()
            raise
        self._awaited = self._missing()
        self._current: Entry | None = None
        self._left = 0
        self._hash = hashlib.sha256()
        self._broken: Exception | None = None
        self._next()

    def __repr__(self) -> str:
        return f"<Incoming {self.tree[:12]} {self.offset}/{self.size}>"

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream.

        Raises:
            Refused: a file's content does not have its SHA-256, or there are more bytes than are missing.
        """
        if self._broken:
            raise self._broken
        try:
            self._take(memoryview(data))
        except Exception as error:  # whoever sent this may not hear of it: a newer connection may have taken over
            self._broken = error
            raise

    def _take(self, view: memoryview) -> None:
        while view:
            if self._current is None:
                raise Refused(f"more than the {self.size} missing bytes were sent")
            part = view[: self._left]
            self._hash.update(part)
            self._target.write(self._current, self._current.member.size - self._left, part)
            if self._pack:
                self._pack.write(part)
            self.offset += len(part)
            self._left -= len(part)
            view = view[len(part) :]
            if not self._left:
                self._end_file(self._current)
                self._next()

    def finish(self) -> Marker:
        """Put the complete tree in place of what the root has, and mark it.

        Raises:
            Vanished: what the store had is gone or damaged; send the manifest again.
            Refused: see `Staging.publish`.
        """
        if self._broken:
            raise self._broken
        if self._pack:
            self._pack.close()
            self._pack = None
        if self.files > len(self.missing):
            self._fill()
        self._target.close(self._manifest)
        self._close()
        if self._store:
            self._store.remember(self.tree, self._manifest)
        revision = f"sha256:{self.tree}"
        marker = Marker(revision=revision, digest=revision, bytes=self.bytes, files=self.files, source="zip")
        self._staging.publish(marker)
        return marker

    def abandon(self) -> None:
        """Close what is open and remove what was staged. What has arrived stays in the store."""
        self._target.abandon()
        self._close()
        self._staging.discard()

    def _begin(self, layout: Layout | None) -> Packing | Unpacking:
        directories = self._plan(layout)
        self._pack = self._store.pack(self.size) if self._store and self.size else None
        return Unpacking(self._staging.tree, directories) if layout is None else Packing(self._staging.pack, layout)

    def _close(self) -> None:
        """Close what was read, and the store's pack."""
        present, self._present = self._present, None
        if present:
            present.close()
        if self._store:
            self._store.close()
        if self._pack:
            self._pack.close()
            self._pack = None

    def _plan(self, layout: Layout | None) -> list[Member]:
        """Check the whole manifest before anything is written, find out what has to be sent, and return directories."""
        sizes: dict[bytes, int] = {}
        found: list[bytes] = []
        directories: list[Member] = []
        for entry in checked(self._entries(), self._limits):
            member = entry.member
            if member.kind == "directory":
                directories.append(member)
                found.append(b"")
                continue
            self.files += 1
            self.bytes += member.size
            if member.kind == "file" and (
                sizes.setdefault(entry.sha256, member.size) != member.size
                or (entry.sha256 == EMPTY) != (member.size == 0)
            ):
                raise Refused(f"the manifest gives {show(member.path)} a size that its content cannot have")
            found.append(entry.sha256)
            if layout is not None and member.size:
                layout.place(entry)
        self._find_kept(found)
        if any(self._kept):
            for sha256 in sizes.keys() - set(found):
                del sizes[sha256]
        self._stored = self._store.find(sizes) if self._store else {}
        for sha256 in (EMPTY, *self._stored):
            sizes.pop(sha256, None)
        for number, sha256 in enumerate(found):
            size = sizes.pop(sha256, None)
            if size is not None:
                self.missing.append(number)
                self.size += size
            elif sha256 not in (b"", EMPTY) and sha256 not in self._stored:
                self._copied[sha256] = None
        return directories

    def _find_kept(self, found: list[bytes]) -> None:
        """Find files that the root has already, which are then no longer among those that are looked for."""
        self._kept = bytearray(len(found))
        if not self._present:
            return
        for number, entry in enumerate(self._entries()):
            if entry.member.kind == "file" and self._present.has(entry):
                self._kept[number] = True
                found[number] = b""

    def _entries(self) -> Iterator[Entry]:
        with self._manifest.open("rb") as file:
            yield from entries(iter(lambda: file.read(64 * 1024), b""), self._limits)

    def _missing(self) -> Iterator[Entry]:
        numbers = iter(self.missing)
        wanted = next(numbers, -1)
        for number, entry in enumerate(self._entries()):
            if number == wanted:
                yield entry
                wanted = next(numbers, -1)

    def _next(self) -> None:
        self._current = next(self._awaited, None)
        if self._current:
            self._left = self._current.member.size
            self._hash = hashlib.sha256()
        else:
            self._target.settle()

    def _end_file(self, entry: Entry) -> None:
        if self._hash.digest() != entry.sha256:
            raise Refused(
                f"the content of {show(entry.member.path)} does not have the SHA-256 of the manifest",
                next_step="It changed while it was sent: send it again",
            )
        if entry.sha256 in self._copied:
            self._copied[entry.sha256] = entry.member
        if self._pack:
            self._pack.end(entry.sha256)

    def _fill(self) -> None:
        """Add links, empty files, and files whose content is in the root, in the store or elsewhere in this tree."""
        sent = iter(self.missing)
        wanted = next(sent, -1)
        for number, entry in enumerate(self._entries()):
            if number == wanted:
                wanted = next(sent, -1)
            elif self._link(number, entry):
                continue
            elif entry.member.kind == "file":
                self._target.put(entry, self._content(number, entry))
            else:
                self._target.add(entry.member)

    def _link(self, number: int, entry: Entry) -> bool:
        if self._present is None or not self._kept[number]:
            return False
        return self._target.take(entry.member, partial(self._present.link, entry))

    def _content(self, number: int, entry: Entry) -> Iterator[bytes]:
        """Yield the content of a file that was not sent, in whichever thread writes it."""
        if not entry.member.size:
            return
        if self._present and self._kept[number]:
            yield from self._present.read(entry)
            return
        if self._store and (place := self._stored.get(entry.sha256)):
            yield from self._store.read(place, entry.sha256)
            return
        twin = self._copied[entry.sha256]
        assert twin is not None
        with os.fdopen(open_member(self._staging.tree, twin), "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk
