"""Keeps the content of files that were uploaded, by SHA-256, so that the next upload sends only what changed.

A store is a directory, such as a claim that sync pods of a queue share. What one upload sends is appended to one pack:

    <content of the first file> <of the second> ... <index: SHA-256, offset and size of each file> <tail>

Beside the packs are the manifests of the trees, each named by its own SHA-256, so that a tree can be asked for by name.

A pack is written under a temporary name and renamed when it is complete, so several pods may write at once, and a crash
leaves a file that is removed later. The tail has the number of files. Content is hashed whenever it is read, so neither
a power cut nor somebody who may write to the claim puts other code into a workspace. Bounded in bytes and in packs:
those that were not used for the longest time go first.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import struct
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import BinaryIO, NamedTuple

from .errors import WorkspaceError
from .tree import CHUNK

__all__ = ["Pack", "Place", "Store", "Vanished"]

_RECORD = struct.Struct(">32sQQ")
_TAIL = struct.Struct(">8sQ")
_MAGIC = b"trchpck1"
_PACK, _TREE, _PART = ".pack", ".tree", ".part"
_MAX_KEPT = 512
_MAX_MANIFEST = 64 * 2**20
_MAX_FILES = 2_000_000
_BLOCK = 4096
_READ = 256 * 1024
"""Bytes that are read, hashed and written in turn; they stay in a core's cache meanwhile."""
_ABANDONED_S = 24 * 3600.0


class Vanished(WorkspaceError):
    """Content that the store had is gone or damaged: another pod needed the room, or the volume lost data."""

    exit_code = 75


class Place(NamedTuple):
    """The content of a file: its pack, where it begins there, and how long it is."""

    pack: str
    offset: int
    size: int


class Store:
    """A store in `directory`, which is made if it is not there, of at most `max_bytes`."""

    def __init__(self, directory: Path, *, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._opening = Lock()
        self._opened: dict[str, int] = {}
        self._unreadable: set[str] = set()
        directory.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return f"<Store {self._directory}>"

    def find(self, wanted: Mapping[bytes, int]) -> dict[bytes, Place]:
        """Return the places of files that are there, by SHA-256. Their packs count as used now.

        A pack that could not be read is left out, so what it has is sent again; another process may read it.

        Args:
            wanted: the sizes of the files, by SHA-256.
        """
        found: dict[bytes, Place] = {}
        for pack in self._kept(_PACK):
            if len(found) == len(wanted):
                break
            if pack.name in self._unreadable:
                continue
            with contextlib.suppress(OSError), pack.open("rb") as file:
                before, name = len(found), pack.name
                for sha256, offset, size in _index(file):
                    if wanted.get(sha256) == size and sha256 not in found:
                        found[sha256] = Place(name, offset, size)
                if len(found) > before:
                    os.utime(file.fileno())
        return found

    def read(self, place: Place, sha256: bytes) -> Iterator[bytes]:
        """Yield the content at a place in chunks. Several threads may read at once, until the store is closed.

        Raises:
            Vanished: if the pack cannot be opened or read; or after the last chunk if what was read is not what was
                asked for, and its pack is removed then.
        """
        found, at, end = hashlib.sha256(), place.offset, place.offset + place.size
        try:
            descriptor = self._descriptor(place.pack)
            while at < end and (chunk := os.pread(descriptor, min(_READ, end - at), at)):
                found.update(chunk)
                at += len(chunk)
                yield chunk
        except OSError as error:
            self._unreadable.add(place.pack)
            raise Vanished(f"the store cannot be read: {error.strerror}", next_step="Send it again") from None
        if at < end or found.digest() != sha256:
            _unlink(self._directory / place.pack)
            raise Vanished("the store no longer has what it had", next_step="Send it again")

    def close(self) -> None:
        """Close the packs that were read."""
        while self._opened:
            os.close(self._opened.popitem()[1])

    def _descriptor(self, name: str) -> int:
        """Open a pack, or go on with the open one: most files of a tree came in a few packs."""
        with self._opening:
            if name not in self._opened:
                self._opened[name] = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            return self._opened[name]

    def pack(self, size: int) -> "Pack | None":
        """Begin a pack for `size` bytes of content; None if the store has no room for it."""
        if size > self._max_bytes:
            return None
        try:
            self.trim(size)
            if shutil.disk_usage(self._directory).free < 2 * size:  # the tree may need room on the same volume
                return None
            return Pack(self._directory)
        except OSError as error:
            print(f"the store is not used: {error}", file=sys.stderr, flush=True)
            return None

    def trim(self, size: int = 0) -> None:
        """Make room for `size` bytes, and remove what crashed uploads left."""
        left = self._max_bytes - size
        for number, kept in enumerate(self._kept(_PACK, _TREE)):
            with contextlib.suppress(FileNotFoundError):
                left -= kept.stat().st_size
                if left < 0 or number >= _MAX_KEPT - 1:
                    _unlink(kept)
        for part in self._directory.glob(f"*{_PART}"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - part.stat().st_mtime > _ABANDONED_S:
                    _unlink(part)

    def remember(self, tree: str, manifest: Path) -> None:
        """Keep the manifest of a tree. A volume that fails does not fail the upload."""
        part = self._directory / (uuid.uuid4().hex + _PART)
        try:
            self.trim(manifest.stat().st_size)
            shutil.copyfile(manifest, part)
            part.rename(self._directory / (tree + _TREE))
        except OSError as error:
            print(f"the list of files is not kept: {error}", file=sys.stderr, flush=True)
            _unlink(part)

    def recall(self, tree: str, manifest: Path) -> bool:
        """Write the manifest of a tree, named by its SHA-256, to a new file; False if it is not here, or is damaged."""
        try:
            descriptor = os.open(self._directory / (tree + _TREE), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        found, left = hashlib.sha256(), _MAX_MANIFEST
        with os.fdopen(descriptor, "rb", buffering=0) as source, manifest.open("xb") as copy:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return False
            while left > 0 and (chunk := source.read(CHUNK)):
                found.update(chunk)
                copy.write(chunk)
                left -= len(chunk)
            with contextlib.suppress(OSError):
                os.utime(descriptor)
        return found.hexdigest() == tree

    def _kept(self, *suffixes: str) -> list[Path]:
        """List what is kept, the last used first."""
        found = []
        with os.scandir(self._directory) as listed:
            for file in listed:
                with contextlib.suppress(FileNotFoundError):
                    if file.name.endswith(suffixes) and file.is_file(follow_symlinks=False):
                        found.append((file.stat(follow_symlinks=False).st_mtime_ns, file.name))
        return [self._directory / name for _, name in sorted(found, reverse=True)]


class Pack:
    """A pack that is being written. A volume that fails ends the pack, not the upload: a store only saves time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / (uuid.uuid4().hex + _PART)
        self._file: BinaryIO | None = self._path.open("xb", buffering=0)
        self._index = bytearray()
        self._begin = self._end = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append content of the current file."""
        if self._file is None:
            return
        try:
            self._end += _write(self._file, data)
        except OSError as error:
            self._give_up(self._file, error)

    def end(self, sha256: bytes) -> None:
        """End the current file, whose content was checked."""
        self._index += _RECORD.pack(sha256, self._begin, self._end - self._begin)
        self._begin = self._end

    def close(self) -> None:
        """Publish the files that were ended."""
        file = self._file
        if file is None:
            return
        try:
            file.truncate(self._begin)
            file.seek(self._begin)
            _write(file, self._index + _TAIL.pack(_MAGIC, len(self._index) // _RECORD.size))
            file.close()
            if self._index:
                self._path.rename(self._path.with_suffix(_PACK))
            else:
                self._path.unlink()
        except OSError as error:
            self._give_up(file, error)
        self._file = None

    def _give_up(self, file: BinaryIO, error: OSError) -> None:
        print(f"the store is not used: {error}", file=sys.stderr, flush=True)
        self._file = None
        with contextlib.suppress(OSError):
            file.close()
        _unlink(self._path)


def _index(file: BinaryIO) -> Iterator[tuple[bytes, int, int]]:
    """Yield SHA-256, offset and size of the files of a pack; nothing if it is none, or half of one."""
    size = file.seek(0, os.SEEK_END)
    if size < _TAIL.size:
        return
    file.seek(size - _TAIL.size)
    magic, count = _TAIL.unpack(file.read(_TAIL.size))
    begin = size - _TAIL.size - count * _RECORD.size
    if magic != _MAGIC or count > _MAX_FILES or begin < 0:
        return
    file.seek(begin)
    for number in range(0, count, _BLOCK):
        yield from _RECORD.iter_unpack(file.read(_RECORD.size * min(_BLOCK, count - number)))


def _write(file: BinaryIO, data: bytes | bytearray | memoryview) -> int:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
    return memoryview(data).nbytes


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
