"""The launcher's rules of trees are those of torchctl.workspace."""

import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import NAMES, TREES, plant

from torchctl.launcher import launcher
from torchctl.workspace import core
from torchctl.workspace.copies import list_tree, tar_chunks
from torchctl.workspace.core import Limits
from torchctl.workspace.steps import drive
from torchctl.workspace.tree import digest

LIMITS = Limits()


def test_reserved_names_are_the_same() -> None:
    assert core.RESERVED == launcher.RESERVED


@settings(max_examples=examples(60))
@given(tree=st.dictionaries(NAMES, TREES, max_size=4))
async def test_both_digest_and_unpack_a_tree_alike(tree: object) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "source"), Path(directory, "target")
        plant(source, tree)
        plant(target, {})
        found = (await drive(digest(source, LIMITS))).digest
        assert launcher.tree_digest(str(source)) == found
        launcher.unpack(io.BytesIO(b"".join(tar_chunks(source, list_tree(source, LIMITS)))), str(target))
        assert launcher.tree_digest(str(target)) == found
        assert (await drive(digest(target, LIMITS))).digest == found


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("/etc/passwd")],
        [member("../outside")],
        [member("a/../../outside")],
        [member(".sync_success")],
        [member(".torchctl-staging/x")],
        [member("fifo", tarfile.FIFOTYPE)],
        [member("hard", tarfile.LNKTYPE, linkname="/etc/passwd")],
        [member("twice"), member("twice")],
        [member("link", tarfile.SYMTYPE, linkname="/tmp"), member("link/x"), member("link/y")],
    ],
    ids=["absolute", "up", "within", "marker", "staging", "pipe", "hard", "twice", "through"],
)
def test_a_hostile_archive_writes_nothing_outside(members: list[tarfile.TarInfo], tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for info in members:
            archive.addfile(info)
    stream.seek(0)
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises((launcher.Unfit, OSError)):
        launcher.unpack(stream, str(root))
    assert os.listdir(tmp_path) == ["root"]


CHUNKED = (st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 50))


@given(*CHUNKED)
def test_content_in_chunks_is_what_was_sent(parts: list[bytes], size: int) -> None:
    sent = b"".join(b"%x;name=value\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    stream = io.BufferedReader(launcher.Chunked(io.BytesIO(sent)), size)
    assert b"".join(iter(lambda: stream.read(size), b"")) == b"".join(parts)


def placed(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file() and launcher.STAGING not in path.parts)
    return {str(path.relative_to(root)): path.read_text() for path in files}


@settings(max_examples=examples(60))
@given(
    old=st.dictionaries(st.sampled_from(["a", "b/c", "b/d", "e/f/g"]), st.just("old")),
    new=st.dictionaries(st.sampled_from(["a", "b/c", "b/d/e", "e"]), st.just("new")),
    made=st.dictionaries(st.sampled_from(["a", "b/x", "e/f/x", "b/__pycache__/x", "z/y"]), st.just("made")),
)
def test_a_swap_leaves_the_new_tree_and_what_was_made(
    old: dict[str, str], new: dict[str, str], made: dict[str, str]
) -> None:
    """The new tree is whole, nothing of the old one is left, and files of the program stay if nothing is in the way."""
    with tempfile.TemporaryDirectory() as directory:
        root, tree = Path(directory), Path(directory, launcher.STAGING, "tree")
        write(root, old)
        stamp = max((path.lstat().st_ctime_ns for path in root.rglob("*")), default=0)
        while root.lstat().st_ctime_ns <= stamp:  # the clock of a file system is coarse
            (root / "probe").touch()
            (root / "probe").unlink()
        written = {name: text for name, text in made.items() if write(root, {name: text})}
        write(tree, new)
        tree.mkdir(parents=True, exist_ok=True)
        (tree.parent / "marker").write_text("{}")
        launcher.swap(str(root), stamp)
        found = placed(root)
        assert found.pop(launcher.MARKER) == "{}"
        assert {name: text for name, text in found.items() if name in new} == new
        assert "old" not in found.values()
        blocked = {name for name in written if any(name.startswith(other + "/") for other in new)}
        kept = {name: text for name, text in written.items() if name not in blocked and "__pycache__" not in name}
        assert found == kept | new


def write(root: Path, files: dict[str, str]) -> bool:
    for name, text in files.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            return False
    return True
