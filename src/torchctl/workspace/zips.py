"""Unpacks a zip file with Python's zipfile for the bytes and our rules for everything else.

Choices that zipfile would make silently: permission bits of archives made on Unix are restored (0777 of them),
symbolic links are links again (and obey the rules for links), names with backslashes and encrypted members are refused,
and times are UTC.
"""

import calendar
import errno
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from .core import Guard, Limits, Member, kind_of, parts_of, show
from .errors import Refused
from .tree import CHUNK
from .unpack import Unpacker

__all__ = ["is_complete", "unpack_zip"]

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_UNIX = 3
_ENCRYPTED = 0x1
_MAX_DIRECTORY = 128 * 2**20


def unpack_zip(archive: Path, target: Path, limits: Limits) -> Generator[None, None, None]:
    """Unpack into an empty directory, pausing after each chunk.

    Raises:
        Refused: it is no zip file, is damaged, or contains something that a workspace must not contain.
    """
    size = archive.stat().st_size
    _check_directory(archive, size, limits)
    guard = Guard(limits, size)
    try:
        with zipfile.ZipFile(archive) as opened, Unpacker(target, guard) as unpacker:
            infos = opened.infolist()
            _check_sum(infos, limits, size)
            for info in infos:
                yield from _unpack_one(opened, info, unpacker, limits)
            unpacker.close()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(error) from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # the error of a seek to an impossible offset
            raise
        raise _damaged(error) from None


def is_complete(archive: Path) -> bool:
    """Tell if a file ends as a zip file ends: not one that is still being copied."""
    with archive.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2**16 - _END.size))
        tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < _END.size:
        return False
    return len(tail) - at == _END.size + int(_END.unpack_from(tail, at)[-1])


def _damaged(error: Exception) -> Refused:
    return Refused(f"the zip file is damaged or of an unknown kind ({error})", next_step="Make it again")


def _unpack_one(
    opened: zipfile.ZipFile, info: zipfile.ZipInfo, unpacker: Unpacker, limits: Limits
) -> Generator[None, None, None]:
    member = _member(info, limits)
    if member.kind == "link":
        with opened.open(info) as content:
            target = content.read(limits.max_path + 1)
        unpacker.add(member._replace(target=os.fsdecode(target), size=0))
    elif member.kind == "directory":
        unpacker.add(member)
    else:
        unpacker.add(member)
        with opened.open(info) as content:
            while chunk := content.read(CHUNK):
                unpacker.write(chunk)
                yield
    yield


def _member(info: zipfile.ZipInfo, limits: Limits) -> Member:
    name = info.orig_filename
    if "\\" in name:
        raise Refused(f"the name {show(name)} has a backslash", next_step="Make the archive with '/' between names")
    if info.flag_bits & _ENCRYPTED:
        raise Refused(f"{show(name)} is encrypted", next_step="Make the archive without a password")
    mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    kind = kind_of(mode) if stat.S_IFMT(mode) else ("directory" if name.endswith("/") else "file")
    if kind is None or (kind == "file" and name.endswith("/")):
        raise Refused(f"{show(name)} is of a kind that a workspace cannot have")
    default = 0o755 if kind == "directory" else 0o644
    mtime = max(calendar.timegm((*info.date_time, 0, 0, 0)), 0)
    return Member(parts_of(name, limits), kind, mode & 0o777 or default, info.file_size, mtime=mtime)


def _check_sum(infos: list[zipfile.ZipInfo], limits: Limits, size: int) -> None:
    """Check the announced sizes before the first write, which stops every bomb that announces its size."""
    Guard(limits, size).spend(sum(info.file_size for info in infos))


def _record64(file: BinaryIO, place: int) -> tuple[int, int] | None:
    """Return entries and length of the table of contents from the ZIP64 record at `place`; None if there is none."""
    file.seek(place)
    record = file.read(_END64.size)
    if len(record) < _END64.size or not record.startswith(b"PK\6\6"):
        return None
    entries, length = _END64.unpack(record)[7:9]
    return entries, length


def _check_directory(archive: Path, size: int, limits: Limits) -> None:
    """Check the size of the table of contents before zipfile reads all of it into memory."""
    with archive.open("rb") as file:
        start = max(0, size - 2**16 - _END.size - _LOCATOR64.size)
        file.seek(start)
        tail = file.read()
        at = tail.rfind(b"PK\5\6")
        if at < 0 or len(tail) - at < _END.size:
            raise Refused("the file is not a zip file", next_step="Check the URL: it must lead to the archive itself")
        _, _, _, _, entries, length, _, _ = _END.unpack_from(tail, at)
        locator = at - _LOCATOR64.size
        if locator >= 0 and tail[locator:at].startswith(b"PK\6\7"):
            # Some versions of zipfile read the record at the locator's offset. Others read it right before the locator,
            # and use the end record if there is none.
            places = (_LOCATOR64.unpack_from(tail, locator)[2], start + locator - _END64.size)
            pointed, before = (_record64(file, min(max(place, 0), size)) for place in places)
            before = before or (entries, length)
            entries, length = map(max, zip(pointed or before, before, strict=True))
    if entries > limits.max_entries or length > _MAX_DIRECTORY:
        raise Refused(f"the zip file has {entries} entries and a table of contents of {length} bytes: too many")
