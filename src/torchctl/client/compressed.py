"""Compresses what is uploaded, for receivers that say that they take it. Blocks: call it in threads.

With zstd at its first level source code shrinks to a fifth or less at some 350 MB/s of a core, and content that does
not shrink passes at 1.8 GB/s, so nothing has to be decided file by file.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from torchctl.workspace import frames

__all__ = ["Piece", "compressed", "plain", "whole"]

_LEVEL = 1


class Piece(NamedTuple):
    """Bytes to send, and how many bytes of content they bring."""

    wire: bytes
    content: int


def compressed(chunks: Iterator[bytes]) -> Iterator[Piece]:
    """Yield the chunks as one frame, each flushed: after a cut the receiver has every block that came whole.

    The next chunk is read meanwhile: to read many small files takes as long as to compress them.
    """
    compressor = frames.zstd.ZstdCompressor(level=_LEVEL)
    for chunk in _ahead(chunks):
        yield Piece(compressor.compress(chunk, mode=compressor.FLUSH_BLOCK), len(chunk))
    yield Piece(compressor.flush(), 0)


def _ahead(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks, each read in a thread while the one before is in use."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, chunks, None)
        while (chunk := following.result()) is not None:
            following = thread.submit(next, chunks, None)
            yield chunk


def plain(chunks: Iterator[bytes]) -> Iterator[Piece]:
    return (Piece(chunk, len(chunk)) for chunk in chunks)


def whole(content: bytes) -> bytes:
    return frames.zstd.compress(content, _LEVEL)
