"""The rules of a workspace tree: the names, links, kinds and amounts that a source may contain.

Every source (zip, git, another claim, the archive server) is reduced to a sequence of members and passes through
one `Guard`, so that a hostile archive is stopped in one place:

- a name is relative, has no `..`, no empty part, no NUL and is of bounded length;
- nothing is written through a link: an entry below a link, or with a name already used, is refused;
- a link's target is relative, has `..` only at its start, and not more of them than the link is deep. The directory of
  a link is never itself a link, so the leading `..` are exact; what follows can only go down, or through another
  link for which the same holds. By induction no chain of links leaves the root;
- only files, directories and symbolic links exist; permission bits are masked with 0777 (no setuid, setgid, sticky);
- bytes, entries and the ratio of unpacked to packed bytes are bounded while unpacking, not only before.
"""

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .errors import Refused

__all__ = [
    "MARKER",
    "PACK",
    "PLACED",
    "RESERVED",
    "STAGING",
    "STORE",
    "WISH",
    "Admitted",
    "Guard",
    "Kind",
    "Limits",
    "Member",
    "check_length",
    "directory_mode",
    "file_mode",
    "kind_of",
    "link_stays_inside",
    "parts_of",
]

MARKER = ".sync_success"
STAGING = ".torchctl-staging"
STORE = ".torchctl-store"
WISH = ".torchctl-wish"
PLACED = ".torchctl-placed"
PACK = ".torchctl-pack"
RESERVED = frozenset(
    {MARKER, MARKER + ".tmp", STAGING, STORE, WISH, WISH + ".tmp", PLACED, PLACED + ".tmp", PACK, "lost+found"}
)
"""Names at the top of a claim that are ours or the file system's: never part of a workspace."""

MAX_NAME_BYTES = 255
_NO_NAMES = frozenset({"", ".", ".."})
Kind = Literal["file", "directory", "link"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the size of a source.

    Args:
        max_bytes: sum of the sizes of all files.
        max_entries: files, directories and links together.
        max_ratio: unpacked to packed bytes of a compressed source, judged once `ratio_floor` bytes are unpacked.
        max_path: bytes of one path below the root, and of a link's target.
    """

    max_bytes: int = 20 * 2**30
    max_entries: int = 500_000
    max_ratio: int = 100
    max_path: int = 1024
    ratio_floor: int = 64 * 2**20


class Member(NamedTuple):
    """One entry of a tree: its path below the root, its kind, and everything needed to recreate it.

    `mtime` is in seconds since the epoch; negative: whenever it is written.
    """

    parts: tuple[str, ...]
    kind: Kind
    mode: int = 0o644
    size: int = 0
    target: str = ""
    mtime: int = 0

    @property
    def path(self) -> str:
        return "/".join(self.parts)


def parts_of(name: str, limits: Limits) -> tuple[str, ...]:
    """Split an archive's name into safe parts; a leading `./` and a trailing `/` are dropped.

    Raises:
        Refused: the name is absolute, climbs, is empty in a part, or is too long.
    """
    if name.startswith("/") or "\0" in name:
        raise Refused(f"the archive has the unsafe name {show(name)}", next_step="Names must be relative")
    parts = tuple(name.split("/"))
    if "" in parts or "." in parts:
        parts = tuple(part for part in parts if part not in ("", "."))
    if ".." in parts:
        raise Refused(f"the archive has the unsafe name {show(name)}", next_step="Names must not contain '..'")
    check_length(name, parts, limits)
    return parts


def check_length(name: str, parts: Iterable[str], limits: Limits) -> None:
    """Refuse a path that is too long, as a whole or in one of its parts.

    Raises:
        Refused: it is.
    """
    if _longer(name, limits.max_path) or (
        _longer(name, MAX_NAME_BYTES) and any(_longer(part, MAX_NAME_BYTES) for part in parts)
    ):
        raise Refused(
            f"the path {show(name)} is too long",
            next_step=f"Paths have at most {limits.max_path} bytes, and {MAX_NAME_BYTES} in one name",
        )


def link_stays_inside(parts: tuple[str, ...], target: str) -> bool:
    """Tell if a link at `parts` can only lead to something below the root (see the top of this module)."""
    if not target or target.startswith("/") or "\0" in target:
        return False
    steps = [step for step in target.split("/") if step not in ("", ".")]
    climbs = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    return climbs < len(parts) and ".." not in steps[climbs:]


def kind_of(mode: int) -> Kind | None:
    """Return the kind of a file by its st_mode, None if a workspace must not contain it."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else None


def file_mode(mode: int) -> int:
    """Return a file's permission bits: the source's without setuid, setgid and sticky, plus owner read and write."""
    return (mode & 0o777) | 0o600


def directory_mode(mode: int) -> int:
    return (mode & 0o777) | 0o700


def show(name: str, limit: int = 120) -> str:
    """Quote, escape and shorten a name for a message, so that it can neither forge nor flood a log."""
    quoted = ascii(name)
    return quoted if len(quoted) <= limit else quoted[:limit] + "...'"


class Guard:
    """Admits members one by one, and their bytes as they arrive. It refuses before anything is written.

    `packed_bytes` is the compressed size of the source, None if it is not compressed.
    """

    def __init__(self, limits: Limits, packed_bytes: int | None = None) -> None:
        self.limits = limits
        self.entries = 0
        self.bytes = 0
        self._packed = packed_bytes
        self._kinds: dict[tuple[str, ...], Kind] = {}

    def __repr__(self) -> str:
        return f"<Guard entries={self.entries} bytes={self.bytes}>"

    def admit(self, member: Member) -> list[tuple[str, ...]]:
        """Check a member and count it.

        Returns:
            The directories that must be made first because the source did not name them, outermost first.

        Raises:
            Refused: the member breaks a rule of the tree or exceeds a limit.
        """
        self._check_name(member)
        parents = self._missing_parents(member)
        known = self._kinds.get(member.parts)
        if known is not None and not (known == member.kind == "directory"):
            raise Refused(f"the archive has {show(member.path)} twice", next_step="Make the archive again")
        if member.kind == "link" and not self._link_ok(member):
            raise Refused(
                f"the link {show(member.path)} leads to {show(member.target)}, outside of the workspace",
                next_step="Use relative links that stay inside, with '..' only at their start",
            )
        for parts in parents:
            self._count_entry()
            self._kinds[parts] = "directory"
        if known is None:
            self._count_entry()
            self._kinds[member.parts] = member.kind
        self._check_bytes(self.bytes + member.size)
        return parents

    def spend(self, count: int) -> None:
        """Count bytes that are about to be written.

        Raises:
            Refused: the total or the ratio exceeds its limit.
        """
        self._check_bytes(self.bytes + count)
        self.bytes += count

    def forget(self, member: Member) -> None:
        """Free the memory of a file or link whose name cannot come again, because its source is in order."""
        del self._kinds[member.parts]

    def _check_name(self, member: Member) -> None:
        path, parts = member.path, member.parts
        if not parts or "\0" in path or not _NO_NAMES.isdisjoint(parts) or path.count("/") != len(parts) - 1:
            raise Refused(f"the archive has the unsafe name {show(path)}")
        check_length(path, parts, self.limits)
        if parts[0] in RESERVED:
            raise Refused(f"the name {show(parts[0])} is reserved", next_step="Rename it in the source")

    def _missing_parents(self, member: Member) -> list[tuple[str, ...]]:
        if self._kinds.get(member.parts[:-1]) == "directory":
            return []  # then all above it are there
        missing = []
        for depth in range(1, len(member.parts)):
            parent = member.parts[:depth]
            kind = self._kinds.get(parent)
            if kind is None:
                missing.append(parent)
            elif kind != "directory":
                raise Refused(f"{show(member.path)} lies below {show('/'.join(parent))}, which is a {kind}")
        return missing

    def _link_ok(self, member: Member) -> bool:
        return _length(member.target) <= self.limits.max_path and link_stays_inside(member.parts, member.target)

    def _count_entry(self) -> None:
        self.entries += 1
        if self.entries > self.limits.max_entries:
            raise Refused(
                f"the source has more than {self.limits.max_entries} entries",
                next_step="Leave out what training does not need (virtual environments, caches, data)",
            )

    def _check_bytes(self, total: int) -> None:
        if total > self.limits.max_bytes:
            raise Refused(
                f"the source unpacks to more than {self.limits.max_bytes} bytes",
                next_step="Leave out what training does not need; put data into a dataset claim",
            )
        packed = self._packed
        if packed is not None and total > max(self.limits.ratio_floor, packed * self.limits.max_ratio):
            raise Refused(f"the archive unpacks to more than {self.limits.max_ratio} times its size")


class Admitted:
    """A guard for members that a `Guard` has admitted before, with their directories: their list is not kept again."""

    def admit(self, member: Member) -> list[tuple[str, ...]]:
        return []

    def spend(self, count: int) -> None:
        return


def _longer(name: str, limit: int) -> bool:
    return len(name) * 4 > limit and _length(name) > limit  # a character has at most four bytes


def _length(name: str) -> int:
    """Return the length in bytes, as the file system counts it; a non-UTF-8 byte is a surrogate in Python's text."""
    return len(name.encode(errors="surrogateescape"))
