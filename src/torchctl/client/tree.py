"""Reads a directory that is to be sent: which files, how large, and what stays here and why. Nothing is sent here."""

import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from torchctl.client.errors import UsageError
from torchctl.client.ignore import OWN, Rules
from torchctl.workspace.core import RESERVED, Limits, Member, check_length, kind_of, link_stays_inside, show
from torchctl.workspace.errors import WorkspaceError

__all__ = ["LeftOut", "LocalFile", "Tree", "look", "scan"]

_MAX_LISTED = 10_000
_SHOWN = 5
_LEAVE_OUT = f"Leave out what training does not need: put a pattern into {OWN}"


class LocalFile(NamedTuple):
    """A member of the tree, and how its file looked when it was found: see `look`."""

    member: Member
    seen: tuple[int, int, int, int]


@dataclass(frozen=True)
class LeftOut:
    """What is not sent: how many entries by reason (a whole directory is one), and their paths."""

    counts: dict[str, int] = field(default_factory=dict)
    paths: tuple[tuple[str, str], ...] = ()
    """Path and reason, at most ten thousand."""


@dataclass(frozen=True)
class Tree:
    """A directory as it would be sent; `members` are in the manifest's order."""

    root: Path
    members: tuple[LocalFile, ...]
    left_out: LeftOut

    def __repr__(self) -> str:
        return f"<Tree {self.root} files={self.files} bytes={self.bytes}>"

    @property
    def files(self) -> int:
        return sum(local.member.kind != "directory" for local in self.members)

    @property
    def bytes(self) -> int:
        return sum(local.member.size for local in self.members)

    def check(self, limits: Limits) -> None:
        """Compare the tree with limits, such as a receiver's.

        Raises:
            UsageError: it exceeds one; the message names the largest paths.
        """
        _check_count(self.members, limits)
        self.check_bytes(limits)
        for local in self.members:
            _check_name(local.member.path, local.member.parts, limits)

    def check_bytes(self, limits: Limits) -> None:
        """As `check`, of the sum of the sizes only."""
        if self.bytes > limits.max_bytes:
            files = (local.member for local in self.members if local.member.size)
            largest = sorted(files, key=lambda m: -m.size)[:_SHOWN]
            raise UsageError(
                f"{self.root} has {_size(self.bytes)} to send, and {_size(limits.max_bytes)} are allowed; the largest: "
                + ", ".join(f"{show(m.path)} ({_size(m.size)})" for m in largest),
                _LEAVE_OUT,
            )


def look(info: os.stat_result) -> tuple[int, int, int, int]:
    """Return size, time of change, inode, and the inode's time of change: those of a file that did not change."""
    return info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns


def scan(root: Path, limits: Limits | None = None) -> Tree:
    """List what of a directory would be sent. Blocks on the disk: call it in a thread.

    Raises:
        UsageError: the directory or something in it cannot be read or named, or there is too much to send.
    """
    limits = limits or Limits()
    scanned = _Scan(root, limits)
    members = sorted(scanned.run(), key=lambda local: local.member.path.encode("utf-8", "surrogateescape"))
    tree = Tree(root, tuple(members), LeftOut(dict(scanned.counts), tuple(scanned.paths)))
    tree.check_bytes(limits)
    return tree


class _Scan:
    def __init__(self, root: Path, limits: Limits) -> None:
        self.counts: Counter[str] = Counter()
        self.paths: list[tuple[str, str]] = []
        self._root = root
        self._limits = limits
        self._found: list[LocalFile] = []

    def run(self) -> list[LocalFile]:
        if not self._root.is_dir():
            raise UsageError(f"there is no directory {self._root}", "Name the directory with your code")
        self._directory((), Rules.of(self._root))
        return self._found

    def _directory(self, parents: tuple[str, ...], rules: Rules) -> None:
        for entry in self._list(parents):
            parts = (*parents, entry.name)
            local = self._judge(entry, parts, rules)
            if local is None:
                continue
            self._found.append(local)
            _check_count(self._found, self._limits)
            if local.member.kind == "directory":
                self._directory(parts, rules.below(self._root, "/".join(parts)))

    def _list(self, parents: tuple[str, ...]) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._root.joinpath(*parents)) as listed:
                return list(listed)
        except OSError as error:
            raise _unreadable("/".join(parents) or str(self._root), error) from None

    def _judge(self, entry: os.DirEntry[str], parts: tuple[str, ...], rules: Rules) -> LocalFile | None:
        """Return the entry as it is to be sent; None if it is left out."""
        path = "/".join(parts)
        try:
            path.encode("utf-8", "surrogateescape")
            info = entry.stat(follow_symlinks=False)
            target = os.readlink(entry.path) if stat.S_ISLNK(info.st_mode) else ""
        except UnicodeEncodeError:
            raise UsageError(f"the name {show(path)} cannot be sent", "Rename it") from None
        except OSError as error:
            raise _unreadable(path, error) from None
        kind = kind_of(info.st_mode)
        why = rules.reason(path, directory=Path(entry.path) if kind == "directory" else None)
        if not why:
            why = _impossible(parts, kind, target)
        if why or kind is None:
            self._leave(path, why)
            return None
        _check_name(path, parts, self._limits)  # before anybody goes deeper
        size = info.st_size if kind == "file" else 0
        member = Member(parts, kind, info.st_mode & 0o777, size, target)
        return LocalFile(member, look(info))

    def _leave(self, path: str, why: str) -> None:
        self.counts[why] += 1
        if len(self.paths) < _MAX_LISTED:
            self.paths.append((path, why))


def _impossible(parts: tuple[str, ...], kind: str | None, target: str) -> str:
    if parts[0] in RESERVED:
        return "reserved name"
    if kind is None:
        return "no file"
    return "link that leads out" if kind == "link" and not link_stays_inside(parts, target) else ""


def _check_name(path: str, parts: tuple[str, ...], limits: Limits) -> None:
    try:
        check_length(path, parts, limits)
    except WorkspaceError as error:
        raise UsageError(error.message, error.next_step) from None


def _check_count(found: Sequence[LocalFile], limits: Limits) -> None:
    if len(found) > limits.max_entries:
        below = (local.member.parts[:2] for local in found if len(local.member.parts) > 1)
        largest = Counter(map("/".join, below)).most_common(_SHOWN)
        raise UsageError(
            f"there are more than {limits.max_entries} files to send; the most are in "
            + ", ".join(f"{show(path)} ({number})" for path, number in largest),
            _LEAVE_OUT,
        )


def _unreadable(path: str, error: OSError) -> UsageError:
    return UsageError(f"cannot read {show(path)}: {error.strerror}", f"Make it readable, or name it in {OWN}")


def _size(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError
