"""Small files that are written in threads."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event

import pytest

from torchctl.workspace.batches import SMALL, Batches, File, files_below
from torchctl.workspace.core import Member
from torchctl.workspace.store import Vanished


def file(*parts: str, size: int, mode: int = 0o644) -> Member:
    return Member(parts, "file", mode, size, mtime=-1)


def put(batches: Batches[File], member: Member, content: Iterable[bytes | memoryview]) -> None:
    batches.put(File(member, content), member.size)


def test_every_file_is_there_once_they_settle(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    batches, expected = files_below(tmp_path), {}
    for number in range(1000):
        parts = ("d", f"{number}") if number % 3 else (f"{number}",)
        expected["/".join(parts)] = content = b"%d" % number * 500
        put(batches, file(*parts, size=len(content)), (memoryview(content),))
    batches.settle()
    assert {path: (tmp_path / path).read_bytes() for path in expected} == expected
    put(batches, file("last", size=1, mode=0o755), (b"x",))
    batches.close()
    assert (tmp_path / "last").stat().st_mode & 0o777 == 0o755


def test_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    batches = files_below(tmp_path)
    put(batches, file("missing", "x", size=1), (b"x",))
    with pytest.raises(FileNotFoundError):
        batches.close()
    batches.abandon()


def test_content_is_read_as_it_is_written(tmp_path: Path) -> None:
    """So the memory of large files is bounded by the threads, and what goes wrong with their content is an error."""
    batches, asked = files_below(tmp_path), list[int]()

    def content(number: int) -> Iterator[bytes]:
        for piece in range(3):
            asked.append(number)
            yield b"%d" % piece * SMALL
        if number == 20:
            raise Vanished("it is gone")

    for number in range(20):
        put(batches, file(f"{number}", size=3 * SMALL), content(number))
    batches.settle()
    assert sorted(asked) == sorted([*range(20)] * 3)
    assert (tmp_path / "7").read_bytes() == b"0" * SMALL + b"1" * SMALL + b"2" * SMALL
    put(batches, file("20", size=3 * SMALL), content(20))
    with pytest.raises(Vanished):
        batches.close()
    batches.abandon()


def test_many_batches_after_an_error_still_raise_it(tmp_path: Path) -> None:
    batches = files_below(tmp_path)

    def put_many() -> None:
        for number in range(10_000):
            put(batches, file("missing", f"{number}", size=1), (b"x",))

    with pytest.raises(FileNotFoundError):
        put_many()
    batches.abandon()


def test_nothing_is_written_after_it_was_abandoned(tmp_path: Path) -> None:
    batches = files_below(tmp_path)
    put(batches, file("x", size=1), (b"x",))
    batches.abandon()
    assert list(tmp_path.iterdir()) == []


def test_large_file_is_not_finished_after_it_was_abandoned(tmp_path: Path) -> None:
    batches, begun, pieces = files_below(tmp_path), Event(), list[int]()

    def content() -> Iterator[bytes]:
        for piece in range(500_000):
            pieces.append(piece)
            yield b"x"
            begun.set()

    put(batches, file("x", size=500_000), content())
    begun.wait()
    batches.abandon()
    assert len(pieces) < 500_000
