"""Small files that are written in threads."""

from pathlib import Path

import pytest

from torchctl.workspace.batches import Batches
from torchctl.workspace.core import Member


def file(*parts: str, size: int, mode: int = 0o644) -> Member:
    return Member(parts, "file", mode, size, mtime=-1)


def test_every_file_is_there_once_they_settle(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    batches, expected = Batches(tmp_path), {}
    for number in range(1000):
        parts = ("d", f"{number}") if number % 3 else (f"{number}",)
        expected["/".join(parts)] = content = b"%d" % number * 500
        batches.put(file(*parts, size=len(content)), memoryview(content))
    batches.settle()
    assert {path: (tmp_path / path).read_bytes() for path in expected} == expected
    batches.put(file("last", size=1, mode=0o755), b"x")
    batches.close()
    assert (tmp_path / "last").stat().st_mode & 0o777 == 0o755


def test_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.put(file("missing", "x", size=1), b"x")
    with pytest.raises(FileNotFoundError):
        batches.close()
    batches.abandon()


def test_many_batches_after_an_error_still_raise_it(tmp_path: Path) -> None:
    batches = Batches(tmp_path)

    def put() -> None:
        for number in range(10_000):
            batches.put(file("missing", f"{number}", size=1), b"x")

    with pytest.raises(FileNotFoundError):
        put()
    batches.abandon()


def test_nothing_is_written_after_it_was_abandoned(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.put(file("x", size=1), b"x")
    batches.abandon()
    assert list(tmp_path.iterdir()) == []
