"""A workspace that workers have mounted is changed file by file, and what programs made there is theirs."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from crashing import Crash, crash_at
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from receivers import TOKEN, contents, plant, receiving

from torchctl.client.tree import scan
from torchctl.client.upload import upload
from torchctl.workspace.core import PLACED
from torchctl.workspace.errors import Refused
from torchctl.workspace.inplace import note
from torchctl.workspace.marker import Marker, read_marker
from torchctl.workspace.staging import Staging

Tree = Mapping[str, bytes | str | None]
FIRST: Tree = {
    "train.py": b"one",
    "pkg/model.py": b"one",
    "pkg/old.py": b"one",
    "pkg/same.py": b"same",
    "gone/a": b"one",
}
SECOND: Tree = {
    "train.py": b"two",
    "pkg/model.py": b"two",
    "pkg/same.py": b"same",
    "new/deep/b": b"two",
    "link": "train.py",
}


def sync(claim: Path, tree: Tree, digest: str, *, in_place: bool = True, time: float = 0) -> None:
    claim.mkdir(exist_ok=True)
    staging = Staging(claim, in_place=in_place)
    staging.open(keep=in_place)
    plant(staging.tree, dict(tree))
    if time:
        os.utime(staging.tree / "train.py", (time, time))
    staging.publish(Marker(revision=digest, digest=digest, bytes=1, files=3, source="zip"))


def claimed(claim: Path) -> Path:
    """A claim as workers get it: its first tree, and the companion's record of that."""
    sync(claim, FIRST, "first", in_place=False)
    note(claim)
    return claim


def files(claim: Path) -> dict[str, object]:
    return {path: what for path, what in contents(claim).items() if what is not None}


def test_what_programs_made_or_changed_stays(tmp_path: Path) -> None:
    """Also in a directory that the new tree does not have; a path of the new tree is always the new tree's."""
    claim = claimed(tmp_path / "claim")
    made = {"out/log": b"mine", "pkg/__pycache__/model.pyc": b"mine", "gone/mine": b"mine", "new": b"in the way"}
    plant(claim, {**made, "pkg/old.py": b"changed", "train.py": b"changed"})
    reader = (claim / "pkg/model.py").open("rb")
    sync(claim, SECOND, "second")
    with reader:
        assert reader.read() == b"one"  # whoever has a file open has the whole of it
    made.pop("new")
    plant(tmp_path / "expected", {**SECOND, **made, "pkg/old.py": b"changed"})
    assert files(claim) == files(tmp_path / "expected")
    sync(claim, FIRST, "third")
    plant(tmp_path / "back", {**FIRST, **made})
    assert files(claim) == files(tmp_path / "back")
    marker = read_marker(claim)
    assert marker is not None
    assert marker.digest == "third"


def test_crash_at_any_call_is_made_good(tmp_path: Path) -> None:
    plant(tmp_path / "expected", {**SECOND, "out/log": b"mine"})
    step, finished = 0, False
    while not finished:
        claim = claimed(tmp_path / str(step))
        plant(claim, {"out/log": b"mine"})
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, step)
            try:
                sync(claim, SECOND, "second")
                finished = True
            except Crash:
                pass
        Staging(claim).finish()
        marker = read_marker(claim)
        assert marker is not None
        if marker.digest == "first":  # nothing was touched
            assert (claim / "train.py").read_bytes() == b"one"
            sync(claim, SECOND, "second")
        assert files(claim) == files(tmp_path / "expected"), f"step {step}"
        sync(claim, FIRST, "first")
        assert not (claim / "link").is_symlink(), f"step {step}: the record is lost"
        step += 1
    assert step > 20


def test_file_in_a_directorys_place_is_refused(tmp_path: Path) -> None:
    """A directory may be a mount point in a worker, so it never goes. Nothing is changed then."""
    claim = claimed(tmp_path / "claim")
    before = files(claim)
    with pytest.raises(Refused, match="'pkg' is a directory of the workspace that the workers have mounted"):
        sync(claim, {"pkg": b"a file", "train.py": b"two"}, "second")
    assert files(claim) == before
    assert read_marker(claim) is not None


def test_directory_that_cannot_be_changed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claimed(tmp_path / "claim")
    theirs = (claim / "gone").stat()
    monkeypatch.setattr(os, "access", lambda path, mode, dir_fd: not os.path.samestat(os.fstat(dir_fd), theirs))
    with pytest.raises(Refused, match="may not change the directory 'gone'"):
        sync(claim, SECOND, "second")
    assert (claim / "train.py").read_bytes() == b"one"


def test_links_that_programs_made_are_not_followed(tmp_path: Path) -> None:
    claim, outside = claimed(tmp_path / "claim"), plant(tmp_path / "outside", {"model.py": b"theirs", "old.py": b"one"})
    for path in ("pkg/model.py", "pkg/old.py", "pkg/same.py"):
        (claim / path).unlink()
    (claim / "pkg").rmdir()
    (claim / "pkg").symlink_to(outside)
    sync(claim, SECOND, "second")
    assert contents(outside) == contents(plant(tmp_path / "same", {"model.py": b"theirs", "old.py": b"one"}))
    assert (claim / "pkg/model.py").read_bytes() == b"two"


def test_record_that_leads_out_is_not_believed(tmp_path: Path) -> None:
    claim, outside = claimed(tmp_path / "claim"), plant(tmp_path / "outside", {"file": b"theirs"})
    status = (outside / "file").stat()
    line = f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns} ../outside/file\0".encode()
    (claim / PLACED).write_bytes(b"first\0" + line)
    sync(claim, SECOND, "second")
    assert (outside / "file").exists()


def test_replaced_file_is_newer_to_python(tmp_path: Path) -> None:
    """Python believes compiled code of a file with the same size and second."""
    claim = claimed(tmp_path / "claim")
    later = int((claim / "train.py").stat().st_mtime) + 1000
    os.utime(claim / "train.py", (later, later))
    sync(claim, SECOND, "second")
    assert int((claim / "train.py").stat().st_mtime) > later


def test_replacement_of_the_same_second_is_newer_to_python(tmp_path: Path) -> None:
    claim = claimed(tmp_path / "claim")
    os.utime(claim / "train.py", (1000.1, 1000.1))
    sync(claim, SECOND, "second", time=1000.9)
    assert (claim / "train.py").stat().st_mtime == 1001


def test_whole_replacement_is_recorded_anew(tmp_path: Path) -> None:
    """Another revision of a repository replaces the workspace between attempts; its record is not the old one."""
    claim = claimed(tmp_path / "claim")
    sync(claim, FIRST, "first", in_place=False)
    note(claim)
    sync(claim, SECOND, "second")
    plant(tmp_path / "expected", dict(SECOND))
    assert files(claim) == files(tmp_path / "expected")


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(PATHS, st.sampled_from([b"", b"1", b"2"]), max_size=6)


@settings(max_examples=examples(15))
@given(st.lists(TREES, min_size=1, max_size=4))
def test_any_trees_one_after_another(tmp_path_factory: pytest.TempPathFactory, trees: list[dict[str, bytes]]) -> None:
    """What the claim has is the last tree that was taken; one that is refused changes nothing."""
    claim, there = tmp_path_factory.mktemp("claim"), dict[str, bytes]()
    sync(claim, {}, "none", in_place=False)
    note(claim)
    for number, tree in enumerate(trees):
        whole = {path: what for path, what in tree.items() if not any(other.startswith(f"{path}/") for other in tree)}
        try:
            sync(claim, whole, str(number))
            there = whole
        except Refused:
            Staging(claim).discard()
        found = {str(p.relative_to(claim)): p.read_bytes() for p in claim.rglob("*") if p.is_file()}
        assert {path: what for path, what in found.items() if not path.startswith(".")} == there


async def test_receiver_changes_a_mounted_claim_in_place(tmp_path: Path) -> None:
    """Files that have not changed are the ones that they were."""
    claim, source = claimed(tmp_path / "claim"), plant(tmp_path / "source", dict(SECOND))
    plant(claim, {"out/log": b"mine"})
    same = (claim / "pkg/same.py").stat().st_ino
    async with receiving(claim, in_place=True) as (url, _):
        done = await upload(url, TOKEN, scan(source))
    assert done.sent == 3
    assert files(claim) == {**files(source), "out/log": files(claim)["out/log"]}
    assert (claim / "pkg/same.py").stat().st_ino == same
