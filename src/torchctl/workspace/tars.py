"""Unpacks a tar file, plain or gzipped, by the same rules as every other source."""

import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

from .core import Guard, Limits, Member
from .errors import Refused
from .tarstream import TarParser
from .tree import CHUNK
from .unpack import Unpacker

__all__ = ["unpack_tar"]

_GZIP = 16 + zlib.MAX_WBITS


def unpack_tar(archive: Path, target: Path, limits: Limits, *, gzipped: bool) -> Generator[None, None, None]:
    """Unpack into an empty directory, pausing after each chunk.

    Raises:
        Refused: it is no tar file, is cut off or damaged, or contains something that a workspace must not contain.
    """
    parser = TarParser(limits)
    guard = Guard(limits, archive.stat().st_size if gzipped else None)
    with Unpacker(target, guard) as unpacker:
        for data in _inflated(archive) if gzipped else _chunks(archive):
            for event in parser.feed(data):
                if isinstance(event, Member):
                    unpacker.add(event)
                else:
                    unpacker.write(event)
            yield
            if parser.ended:
                break
        if not parser.ended:
            raise Refused("the tar file is cut off", next_step="Make it again")
        unpacker.close()


def _chunks(archive: Path) -> Iterator[bytes]:
    with archive.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _inflated(archive: Path) -> Iterator[bytes]:
    """Inflate a file in chunks of limited size, whatever its compression ratio; reads all gzip members."""
    inflater = zlib.decompressobj(_GZIP)
    for chunk in _chunks(archive):
        while chunk:
            try:
                yield inflater.decompress(chunk, CHUNK)
            except zlib.error as error:
                raise Refused(f"the file is not gzipped, or damaged ({error})", next_step="Make it again") from None
            chunk = inflater.unused_data or inflater.unconsumed_tail
            if inflater.eof:
                inflater = zlib.decompressobj(_GZIP)
