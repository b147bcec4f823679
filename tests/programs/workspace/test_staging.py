"""A crash at any step of putting a tree in place leaves what the next try cleans up."""

import errno
import os
from pathlib import Path

import pytest
from crashing import Crash, crash_at

from torchctl.workspace.core import PACK
from torchctl.workspace.errors import Refused
from torchctl.workspace.marker import Marker, read_marker, write_marker
from torchctl.workspace.staging import Staging

MARKER = Marker(revision="r", digest="d", bytes=1, files=3, source="git", request="q")


def sync(claim: Path, names: str) -> None:
    """Puts a tree on the claim: a directory for each name, or one pack if it is P."""
    staging = Staging(claim)
    staging.open()
    if names == "P":
        staging.pack.write_text("pack")
        names = ""
    for name in names:
        (staging.tree / name).mkdir()
        (staging.tree / name / "file").write_text(name)
    staging.publish(MARKER)


def there(names: str) -> set[str]:
    return {PACK} if names == "P" else set(names)


@pytest.mark.parametrize("wanted", ["abc", "P"])
@pytest.mark.parametrize("before", ["", "abx", "P"])
def test_next_try_cleans_up_after_any_crash(before: str, wanted: str, tmp_path: Path) -> None:
    step, finished = 0, False
    while not finished:
        claim = tmp_path / str(step)
        (claim / "lost+found").mkdir(parents=True)
        if before:
            sync(claim, before)
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, step)
            try:
                sync(claim, wanted)
                finished = True
            except Crash:
                pass
        if not finished and read_marker(claim) is not None:
            names = set(os.listdir(claim)) - {"lost+found", ".torchctl-staging", ".sync_success", ".sync_success.tmp"}
            assert names in (there(before), there(wanted)), f"step {step}: a marker over a broken tree"
            if names == there(wanted) != there(before):  # nobody stages again: what comes next takes the tree as it is
                Staging(claim).finish()
                assert list((claim / ".torchctl-staging").rglob("*")) == [], f"step {step}"
        sync(claim, "cd")
        assert sorted(os.listdir(claim)) == [".sync_success", "c", "d", "lost+found"], f"step {step}"
        step += 1
    assert step > 20


def test_next_try_works_after_any_error(tmp_path: Path) -> None:
    """A volume that is full or fails at any step: what was staged is discarded, and the claim is not stuck."""
    step, finished = 0, False
    while not finished:
        claim = tmp_path / str(step)
        claim.mkdir()
        sync(claim, "abx")
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, step, OSError(errno.ENOSPC, "No space left on device"))
            try:
                sync(claim, "abc")
                finished = True
            except OSError:
                pass
        Staging(claim).discard()
        sync(claim, "cd")
        assert sorted(os.listdir(claim)) == [".sync_success", "c", "d"], f"step {step}"
        step += 1


def test_files_of_others_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(Refused, match="'mine'"):
        sync(tmp_path, "a")
    assert (tmp_path / "mine").exists()


def test_a_marker_that_is_none_is_somebody_elses_file(tmp_path: Path) -> None:
    (tmp_path / ".sync_success").write_text("done")
    with pytest.raises(Refused, match="not a marker"):
        sync(tmp_path, "a")


def test_directory_in_the_markers_place_is_refused(tmp_path: Path) -> None:
    """In one line, and the companion that looks at it each second goes on."""
    (tmp_path / ".sync_success").mkdir()
    with pytest.raises(Refused, match=r"cannot read \.sync_success: Is a directory"):
        read_marker(tmp_path)


def test_a_link_in_the_markers_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text(MARKER.to_json())
    claim = tmp_path / "claim"
    claim.mkdir()
    (claim / ".sync_success").symlink_to("../outside")
    with pytest.raises(Refused):
        read_marker(claim)


def test_a_link_in_the_staging_areas_place_is_not_followed(tmp_path: Path) -> None:
    claim, outside = tmp_path / "claim", tmp_path / "outside"
    claim.mkdir()
    outside.mkdir()
    write_marker(claim, MARKER)
    (claim / ".torchctl-staging").symlink_to(outside)
    sync(claim, "a")
    assert os.listdir(outside) == []
