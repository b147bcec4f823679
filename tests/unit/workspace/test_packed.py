"""How a pack is written: by whom, and in which order its parts begin their way to the disk."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchctl.workspace import packed
from torchctl.workspace.core import PACK, Limits, Member
from torchctl.workspace.manifest import Entry, line
from torchctl.workspace.packed import Layout, Packing, opened


class Time:
    """Passes as told; threads do nothing but wait."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return 0.0


def files(*contents: bytes) -> list[tuple[Entry, bytes]]:
    members = (Member((f"file-{number:03}",), "file", 0o644, len(content)) for number, content in enumerate(contents))
    return [(Entry(member, hashlib.sha256(c).digest()), c) for member, c in zip(members, contents, strict=True)]


@pytest.mark.parametrize(("each_s", "others"), [(0.0, 0), (0.09, 8), (1.0, 9)])
def test_threads_take_small_contents_that_are_waited_for(
    each_s: float, others: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on: each of ten costs so many seconds. All arrive, and none is hurried to the disk by itself."""
    clock, takers, begun = Time(), list[int](), list[int]()
    monkeypatch.setattr(packed, "time", clock)
    monkeypatch.setattr(packed, "start_flush", lambda file, *where: begun.append(file))

    def waiting(content: bytes) -> Iterator[bytes]:
        takers.append(threading.get_ident())
        clock.now += each_s
        yield content

    found = files(*(b"%d" % number * 100 for number in range(10)))
    layout = Layout()
    for entry, _ in found:
        layout.place(entry)
    (tmp_path / "manifest").write_bytes(b"".join(line(entry) for entry, _ in found))
    packing = Packing(tmp_path / PACK, layout)
    for entry, content in found:
        packing.put(entry, waiting(content))
    packing.close(tmp_path / "manifest")
    assert sum(taker != threading.get_ident() for taker in takers) == others
    assert begun == []
    tree = opened(tmp_path)
    assert tree is not None
    with tree:
        read = {entry.member.path: b"".join(tree.content(entry, place)) for entry, place in tree.entries(Limits())}
    assert read == {entry.member.path: content for entry, content in found}


def test_what_was_written_begins_its_way_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many bytes, wherever in the pack they are."""
    begun = list[tuple[int, ...]]()
    monkeypatch.setattr(packed, "start_flush", lambda file, *where: begun.append(where))
    monkeypatch.setattr(packed, "_FLUSH", 2**20)
    found = files(*(bytes([number]) * 2**16 for number in range(64)))
    layout = Layout()
    for entry, _ in found:
        layout.place(entry)
    packing = Packing(tmp_path / "pack", layout)
    for entry, content in [*found[32:], *found[:32]]:
        packing.put(entry, iter([content]))
    packing.abandon()
    assert begun == [()] * 4
