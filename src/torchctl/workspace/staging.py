"""Moves a tree into place so that, after a crash at any moment, the next try can clean up the claim or finish the move.

A claim's root is a mount point and cannot be renamed over, so a tree is written below `.torchctl-staging`. When it is
complete, the move is sealed: a file beside the staged tree names the entries that go, the entries that come, and the
marker. From then on the move is only ever finished: entries that go are removed, staged ones are renamed into the root,
and the marker is written last. Before that, a journal names what `open` removes: with a journal and no marker such
entries are leftovers of a crashed try. Files that neither a marker nor a journal accounts for belong to somebody else,
and then nothing is changed.

A workspace that workers have mounted is changed file by file instead (`inplace`), by a move that is sealed as well. One
that is packed (`packed`) is a single file, which is staged beside the tree and renamed into the root.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import inplace
from .core import MARKER, PACK, PLACED, RESERVED, STAGING, show
from .errors import Refused
from .flush import flush_directory, flush_filesystem
from .marker import Marker, read_marker, remove_marker, write_marker

__all__ = ["Staging"]


class Staging:
    """The staging area of one root: `open()` cleans up, the caller fills `tree`, `publish()` moves it into place.

    Whoever writes a pack at `pack` leaves `tree` empty.

    Args:
        spent: names at the top of the root that somebody put there for this sync, so it removes them when it is done.
        in_place: workers have the root mounted.
    """

    def __init__(self, root: Path, *, spent: Iterable[str] = (), in_place: bool = False) -> None:
        self.root = root
        self.directory = root / STAGING
        self.tree = self.directory / "tree"
        self.pack = self.directory / "pack"
        self.scratch = self.directory / "scratch"
        self._spent = frozenset(spent)
        self._in_place = in_place
        self._journal = self.directory / "journal.json"
        self._sealed = self.directory / "sealed.json"

    def __repr__(self) -> str:
        return f"<Staging {self.directory}>"

    def open(self, *, keep: bool = False) -> None:
        """Make an empty staging area, and remove a crashed try or an earlier workspace from the root.

        Args:
            keep: leave the earlier workspace where it is until `publish`.

        Raises:
            Refused: the root holds files that no sync put there.
        """
        if self.directory.is_symlink() or self.directory.is_file():
            self.directory.unlink()
        self.finish()
        if not (keep and read_marker(self.root)):
            self._empty_root()
        self._remove(self.directory)
        self.tree.mkdir(parents=True)
        self.scratch.mkdir()

    def publish(self, marker: Marker) -> None:
        """Move the staged tree into the root in place of what is there, and write the marker.

        Raises:
            Refused: meanwhile somebody put files into the root; or see `inplace.prepare`.
        """
        sealed: dict[str, object] = {"marker": marker.to_json()}
        if self._in_place:
            inplace.prepare(self.root, self.directory, marker.digest)
            sealed |= {"in_place": True}
        else:
            sealed |= {"goes": self._ours(), "comes": sorted(os.listdir(self.tree)), "packed": self.pack.exists()}
        flush_filesystem(self.root)
        self._write(self._sealed, sealed)
        self.finish()

    def finish(self) -> None:
        """Finish a move that was sealed before a crash; without one, do nothing."""
        sealed = self._read(self._sealed)
        if sealed is None:
            return
        if os.path.lexists(self.root / MARKER):
            remove_marker(self.root)
        self._place_pack(is_packed=sealed.get("packed", False))
        if sealed.get("in_place"):
            inplace.move(self.root, self.directory)
        else:
            self._move(sealed)
        write_marker(self.root, Marker.from_json(sealed["marker"]))
        for path in self.directory.iterdir():
            if path != self._sealed:  # it goes last: a crash leaves nothing that nobody would remove
                self._remove(path)
        self._remove(self._sealed)
        self.discard()

    def _move(self, sealed: dict[str, Any]) -> None:
        self._remove(self.root / PLACED)
        staged = set(os.listdir(self.tree)) if self.tree.is_dir() else set()  # it goes once it is empty
        for name in set(os.listdir(self.root)) - RESERVED:  # what the file says is not a path to follow
            if name in sealed["goes"] and (name in staged or name not in sealed["comes"]):  # else it has been renamed
                self._remove(self.root / name)
        for name in sorted(staged):
            os.rename(self.tree / name, self.root / name)

    def _place_pack(self, *, is_packed: bool) -> None:
        if is_packed and not self.pack.exists():
            return  # it has been renamed
        self._remove(self.root / PACK)
        if is_packed:
            os.rename(self.pack, self.root / PACK)

    def discard(self) -> None:
        """Remove what was staged, but not what tells the next try whose the files in the root are."""
        if self._sealed.exists():
            return
        if self._journal.exists() and not os.path.lexists(self.root / MARKER):
            for path in (self.tree, self.pack, self.scratch):
                self._remove(path)
        else:
            self._remove(self.directory)

    def _empty_root(self) -> None:
        present = self._ours()
        if os.path.lexists(self.root / MARKER):
            self.directory.mkdir(exist_ok=True)
            self._write(self._journal, sorted({*present, *(self._read(self._journal) or ())}))
            remove_marker(self.root)
        self._remove(self.root / PACK)
        for name in present:
            if name not in self._spent:
                self._remove(self.root / name)

    def _ours(self) -> list[str]:
        """Return the names in the root that a sync put there.

        Raises:
            Refused: there are others.
        """
        present = sorted(set(os.listdir(self.root)) - RESERVED)
        if os.path.lexists(self.root / MARKER):
            read_marker(self.root)  # a file of that name that is no marker is a user's
            return present
        known = self._spent.union(self._read(self._journal) or ())
        foreign = [name for name in present if name not in known]
        if foreign:
            raise Refused(
                f"the volume already has files that no sync put there ({', '.join(show(n, 40) for n in foreign[:3])})",
                next_step="Empty it, or use the source 'existing'",
            )
        return present

    def _write(self, path: Path, content: object) -> None:
        temporary = path.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_directory(self.directory)
        flush_directory(self.root)

    @staticmethod
    def _read(path: Path) -> Any:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    @staticmethod
    def _remove(path: Path) -> None:
        if path.is_symlink() or not path.is_dir():
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        else:
            shutil.rmtree(path)
