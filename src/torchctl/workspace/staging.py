"""Moves a tree into place so that, after a crash at any moment, the next try can clean up the claim.

A claim's root is a mount point and cannot be renamed over, so a tree is written below `.torchctl-staging`, and when it
is complete its top-level entries are renamed into the root and the marker is written last. A journal beside the staged
tree names what may have been renamed or half removed: with a journal and no marker they are leftovers of a crashed try.
Files that neither a marker nor a journal accounts for belong to somebody else, and then nothing is changed.
"""

import contextlib
import json
import os
import shutil
from pathlib import Path

from .core import MARKER, RESERVED, STAGING, show
from .errors import Refused
from .marker import Marker, flush_directory, read_marker, remove_marker, write_marker

__all__ = ["Staging"]


class Staging:
    """The staging area of one root: `open()` cleans up, the caller fills `tree`, `publish()` moves it into place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / STAGING
        self.tree = self.directory / "tree"
        self.scratch = self.directory / "scratch"
        self._journal = self.directory / "journal.json"

    def __repr__(self) -> str:
        return f"<Staging {self.directory}>"

    def open(self) -> None:
        """Make an empty staging area, and remove a crashed try or an earlier workspace from the root.

        Raises:
            Refused: the root holds files that no sync put there.
        """
        if self.directory.is_symlink() or self.directory.is_file():
            self.directory.unlink()
        self._empty_root()
        self._remove(self.directory)
        self.tree.mkdir(parents=True)
        self.scratch.mkdir()

    def publish(self, marker: Marker) -> None:
        """Move the staged tree into the root, write the marker, and remove the staging area."""
        names = sorted(os.listdir(self.tree))
        self._doom(names)
        for name in names:
            os.rename(self.tree / name, self.root / name)
        write_marker(self.root, marker)
        self.discard()

    def discard(self) -> None:
        self._remove(self.directory)

    def _empty_root(self) -> None:
        present = sorted(set(os.listdir(self.root)) - RESERVED)
        if os.path.lexists(self.root / MARKER):
            read_marker(self.root)  # a file of that name that is no marker is a user's
            self._doom(present)
            remove_marker(self.root)
        doomed = self._doomed()
        foreign = [name for name in present if name not in doomed]
        if foreign:
            raise Refused(
                f"the volume already has files that no sync put there ({', '.join(show(n, 40) for n in foreign[:3])})",
                next_step="Empty it, or use the source 'existing'",
            )
        for name in present:
            self._remove(self.root / name)

    def _doom(self, names: list[str]) -> None:
        self.directory.mkdir(exist_ok=True)
        temporary = self._journal.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(sorted({*names, *self._doomed()}), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._journal)
        flush_directory(self.directory)
        flush_directory(self.root)

    def _doomed(self) -> frozenset[str]:
        try:
            return frozenset(json.loads(self._journal.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return frozenset()

    @staticmethod
    def _remove(path: Path) -> None:
        if path.is_symlink() or not path.is_dir():
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        else:
            shutil.rmtree(path)
