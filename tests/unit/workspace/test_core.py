"""The rules of a workspace tree."""

import os
import tempfile
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.workspace.core import RESERVED, Guard, Kind, Limits, Member, link_stays_inside, parts_of
from torchctl.workspace.errors import Refused
from torchctl.workspace.unpack import Unpacker

NAMES = st.sampled_from(["a", "b", "..", ".", "", "lost+found", ".sync_success", "é", "/", "a\0b", "x" * 300])
PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "a/..", "a\0b", "x" * 256, "a/" * 600])
def test_unsafe_or_overlong_name_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        parts_of(name, Limits())


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("a", "b", True),
        ("a", "b/c/", True),
        ("d/a", "../b", True),
        ("d/a", "..", True),
        ("a", "..", False),
        ("d/a", "../..", False),
        ("a", "/etc", False),
        ("a", "", False),
        ("a", "x/../y", False),
        ("d/e/a", "./.././../f", True),
    ],
)
def test_link_may_climb_only_first_and_within_the_root(path: str, target: str, inside: bool) -> None:
    assert link_stays_inside(tuple(path.split("/")), target) is inside


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_source_cannot_bring_its_own_marker(name: str) -> None:
    with pytest.raises(Refused, match="reserved"):
        Guard(Limits()).admit(Member((name,), "file"))
    Guard(Limits()).admit(Member(("below", name), "file"))


def test_nothing_is_written_below_a_link_or_a_file() -> None:
    guard = Guard(Limits())
    guard.admit(Member(("link",), "link", target="elsewhere"))
    with pytest.raises(Refused, match="below 'link', which is a link"):
        guard.admit(Member(("link", "file"), "file"))


def test_a_name_that_comes_twice_is_refused() -> None:
    guard = Guard(Limits())
    guard.admit(Member(("a", "b"), "file"))
    guard.admit(Member(("a",), "directory"))
    with pytest.raises(Refused, match="twice"):
        guard.admit(Member(("a", "b"), "link", target="x"))


def test_entries_made_on_the_way_count() -> None:
    guard = Guard(Limits(max_entries=3))
    guard.admit(Member(("a", "b", "c"), "file"))
    with pytest.raises(Refused, match="more than 3 entries"):
        guard.admit(Member(("d",), "file"))


def test_bytes_and_ratio_are_bounded_while_unpacking() -> None:
    with pytest.raises(Refused, match="more than 10 bytes"):
        Guard(Limits(max_bytes=10)).spend(11)
    guard = Guard(Limits(max_ratio=2, ratio_floor=5), packed_bytes=10)
    guard.spend(20)
    with pytest.raises(Refused, match="2 times its size"):
        guard.spend(1)


@st.composite
def members(draw: st.DrawFn) -> Member:
    parts = tuple(draw(st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), min_size=1, max_size=4)))
    kind: Kind = draw(st.sampled_from(list[Kind](["file", "directory", "link", "link"])))
    target = "/".join(draw(st.lists(st.sampled_from(["a", "b", "c", "..", ".", "/"]), min_size=1, max_size=5)))
    return Member(parts, kind, target=target if kind == "link" else "")


@settings(max_examples=examples(300))
@given(st.lists(members(), max_size=12))
def test_no_sequence_of_members_leads_out_of_the_root(entries: list[Member]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        outside = Path(directory).resolve()
        root = outside / "one" / "root"
        root.mkdir(parents=True)
        for name in "abc":  # what a link could find outside
            (outside / name).mkdir()
            (outside / "one" / name).mkdir()
        with Unpacker(root, Guard(Limits())) as unpacker:
            for member in entries:
                try:
                    unpacker.add(member)
                except Refused:
                    continue
            unpacker.close()
        assert sorted(os.listdir(outside)) == ["a", "b", "c", "one"]
        assert sorted(os.listdir(outside / "one")) == ["a", "b", "c", "root"]
        for path in root.rglob("*"):
            if path.is_symlink():
                try:
                    resolved = path.resolve(strict=True)
                except (OSError, RuntimeError):  # it leads nowhere
                    continue
                assert resolved.is_relative_to(root), path


@given(PATHS)
def test_accepted_parts_join_to_a_path_below_the_root(name: str) -> None:
    try:
        parts = parts_of(name, Limits())
    except Refused:
        return
    assert os.path.normpath(os.path.join("/root", *parts)).startswith("/root")
    assert not {"", ".", ".."} & set(parts)
