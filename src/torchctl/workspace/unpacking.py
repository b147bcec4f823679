"""Writes an upload as files, for a claim whose files somebody looks at; `packed.Packing` is the other way.

Small files are written in threads of their own, a little later, and so is what need not be sent.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .batches import SMALL, File, files_below
from .core import Admitted, Member
from .manifest import Entry
from .unpack import Unpacker

__all__ = ["Unpacking"]


class Unpacking:
    """Writes the files of a tree below `tree`: those that arrive one after another, and others in a few threads.

    Args:
        directories: of the tree, each after its parent.

    Raises:
        OSError: the volume is full or cannot be written.
    """

    def __init__(self, tree: Path, directories: Sequence[Member]) -> None:
        self._unpacker = Unpacker(tree, Admitted())
        self._batches = files_below(tree)
        for directory in directories:
            self._unpacker.add(directory)

    def write(self, entry: Entry, at: int, part: memoryview) -> None:
        """Take a part of a file's content, which begins at byte `at` of it."""
        member = entry.member
        if len(part) == member.size <= SMALL:
            self._batches.put(File(member, (part,)), member.size)
            return
        if not at:
            self._unpacker.add(member)
        self._unpacker.write(part)

    def put(self, entry: Entry, content: Iterable[bytes | memoryview]) -> None:
        """Take a file whose content is elsewhere; a thread takes its pieces."""
        self._batches.put(File(entry.member, content), entry.member.size)

    def add(self, member: Member) -> None:
        """Take a directory or a link."""
        self._unpacker.add(member)

    def take(self, member: Member, place: Callable[[str], bool]) -> bool:
        """Take a file that `place` puts at the path that it is given; False if it did not."""
        return self._unpacker.take(member, place)

    def settle(self) -> None:
        """Wait until all small files so far are written."""
        self._batches.settle()

    def close(self, manifest: Path) -> None:
        """Complete the tree."""
        self._batches.close()
        self._unpacker.close()

    def abandon(self) -> None:
        """Stop, and wait for the pieces that are being written."""
        self._batches.abandon()
        self._unpacker.__exit__()
