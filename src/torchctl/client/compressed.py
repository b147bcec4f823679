"""Compresses what is uploaded, for receivers that say that they take it. Blocks: call it in threads.

With zstd at its first level source code shrinks to a fifth or less at some 350 MB/s of a core, and content that does
not shrink passes at 1.8 GB/s, so nothing has to be decided file by file.
"""

from collections.abc import Iterator
from typing import NamedTuple

from torchctl.workspace import frames

__all__ = ["Piece", "compressed", "plain", "whole"]

_LEVEL = 1


class Piece(NamedTuple):
    """Bytes to send, and how many bytes of content they bring."""

    wire: bytes
    content: int


def compressed(chunks: Iterator[bytes]) -> Iterator[Piece]:
    """Yield the chunks as one frame, each flushed: after a cut the receiver has every block that came whole."""
    compressor = frames.zstd.ZstdCompressor(level=_LEVEL)
    for chunk in chunks:
        yield Piece(compressor.compress(chunk, mode=compressor.FLUSH_BLOCK), len(chunk))
    yield Piece(compressor.flush(), 0)


def plain(chunks: Iterator[bytes]) -> Iterator[Piece]:
    return (Piece(chunk, len(chunk)) for chunk in chunks)


def whole(content: bytes) -> bytes:
    return frames.zstd.compress(content, _LEVEL)
