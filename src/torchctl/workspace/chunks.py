"""Joins small pieces of a stream: each costs whoever sends it a wake-up."""

from collections.abc import Iterable, Iterator

__all__ = ["gathered"]


def gathered(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of at least `size`, but for the last one."""
    waiting, held = list[bytes](), 0
    for piece in pieces:
        waiting.append(piece)
        held += len(piece)
        if held >= size:
            yield b"".join(waiting)
            waiting, held = [], 0
    if waiting:
        yield b"".join(waiting)
