"""What is wanted with a tree: kept on the claim until another tree is in place."""

from pathlib import Path

from torchctl.workspace.core import WISH
from torchctl.workspace.marker import Marker, write_marker
from torchctl.workspace.membership.core import Target
from torchctl.workspace.wanted import Wish, read_target, write_wish

OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def has(claim: Path, revision: str) -> None:
    write_marker(claim, Marker(revision=revision, digest=revision, bytes=1, files=1, source="zip"))


def test_tree_without_a_wish_starts_programs_again(tmp_path: Path) -> None:
    assert read_target(tmp_path) is None
    has(tmp_path, OLD)
    assert read_target(tmp_path) == Target(OLD)
    write_wish(tmp_path, Wish(OLD, restart=False))
    assert read_target(tmp_path) == Target(OLD, restart=False)
    write_wish(tmp_path, Wish(OLD, restart=True))
    assert read_target(tmp_path) == Target(OLD)


def test_wish_for_the_next_tree_changes_nothing_now(tmp_path: Path) -> None:
    """Otherwise the second tree without a restart would start programs again, with the first one."""
    has(tmp_path, OLD)
    write_wish(tmp_path, Wish(OLD, restart=False))
    write_wish(tmp_path, Wish(NEW, restart=False))
    assert read_target(tmp_path) == Target(OLD, restart=False)
    has(tmp_path, NEW)
    assert read_target(tmp_path) == Target(NEW, restart=False)


def test_wishes_of_uploads_at_once_are_bounded(tmp_path: Path) -> None:
    has(tmp_path, OLD)
    write_wish(tmp_path, Wish(OLD, restart=False))
    for number in range(1000):
        write_wish(tmp_path, Wish(f"sha256:{number:064}", restart=False))
    has(tmp_path, f"sha256:{995:064}")
    assert read_target(tmp_path) == Target(f"sha256:{995:064}", restart=False)
    assert (tmp_path / WISH).stat().st_size < 2000


def test_damaged_wishes_are_none(tmp_path: Path) -> None:
    has(tmp_path, OLD)
    (tmp_path / WISH).write_bytes(b"[{")
    assert read_target(tmp_path) == Target(OLD)
