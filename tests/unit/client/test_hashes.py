"""Which files of a directory need not be read again before they are sent."""

import os
import time
from pathlib import Path

import pytest

from torchctl.client import hashes
from torchctl.client.content import Content
from torchctl.client.tree import scan
from torchctl.client.upload import hashed

OTHER = bytes(32)
"""No file has this SHA-256: where it shows up, it was remembered."""


@pytest.fixture
def memory(cache: Path) -> Path:
    return cache / "torchctl" / "hashes"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    (directory / "package").mkdir(parents=True)
    for name in ("train.py", "package/model.py", "package/caf\udce9.py"):
        (directory / name).write_text(name[:5])
    return directory


def remember(directory: Path, *, later_s: float = 60.0) -> None:
    """Remembers each file under a SHA-256 that it does not have, as if it had been read some time later."""
    tree = scan(directory)
    sha256 = tuple(OTHER if local.member.kind == "file" else b"" for local in tree.members)
    hashes.keep(Content(tree, sha256), time.time_ns() + int(later_s * 1e9))


def overwrite(file: Path) -> None:
    """Changes the content in place; size and time of change stay."""
    before = file.stat()
    file.write_text("other")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def damage(memory: Path) -> None:
    for file in memory.iterdir():
        file.write_bytes(file.read_bytes()[:-10])


async def read_again(directory: Path) -> set[str]:
    """The files that are read, of those that are sent."""
    tree = scan(directory)
    pairs = zip(tree.members, (await hashed(tree)).sha256, strict=True)
    return {local.member.path for local, sha256 in pairs if local.member.kind == "file" and sha256 != OTHER}


async def test_unchanged_files_are_not_read_again(code: Path) -> None:
    assert len(await read_again(code)) == 3
    remember(code)
    assert await read_again(code) == set()


async def test_a_changed_file_is_read_whatever_its_time_says(code: Path) -> None:
    """Same size, and the old time of change put back, as `rsync --inplace --times` does."""
    remember(code)
    overwrite(code / "train.py")
    (code / "new.py").write_text("new")
    (code / "package" / "model.py").unlink()
    assert await read_again(code) == {"train.py", "new.py"}


async def test_a_replaced_file_is_read(code: Path, tmp_path: Path) -> None:
    remember(code)
    (tmp_path / "train.py").write_text("other")
    (tmp_path / "train.py").replace(code / "train.py")
    assert await read_again(code) == {"train.py"}


async def test_files_of_the_last_moments_are_read_again(code: Path) -> None:
    remember(code, later_s=0)
    assert len(await read_again(code)) == 3


async def test_damaged_memory_is_no_memory(code: Path, memory: Path) -> None:
    remember(code)
    damage(memory)
    assert len(await read_again(code)) == 3


def test_directories_are_remembered_up_to_a_number(tmp_path: Path, memory: Path) -> None:
    for number in range(hashes.MOST + 3):
        (tmp_path / f"{number}").mkdir()
        remember(tmp_path / f"{number}")
    assert len(list(memory.iterdir())) == hashes.MOST


def test_home_that_cannot_be_written_is_no_failure(code: Path, cache: Path) -> None:
    cache.write_text("a file")
    remember(code)
    assert hashes.known(scan(code)) == {}
