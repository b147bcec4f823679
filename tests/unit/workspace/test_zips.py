"""Zip files: modes and links are restored, hostile ones stop early and leave nothing outside."""

import contextlib
import os
import struct
import tempfile
import time
import zipfile
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.workspace.core import Limits
from torchctl.workspace.errors import Refused
from torchctl.workspace.zips import unpack_zip


def entry(name: str, mode: int = 0o100644, system: int = 3) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10))
    info.external_attr, info.create_system = mode << 16, system
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def archive(path: Path, *entries: tuple[zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for info, data in entries:
            file.writestr(info, data)
    return path


def unpack(file: Path, limits: Limits | None = None) -> Path:
    target = file.with_suffix(".d")
    target.mkdir()
    for _ in unpack_zip(file, target, limits or Limits()):
        pass
    return target


def test_modes_links_and_times_are_restored_and_setuid_is_not(tmp_path: Path) -> None:
    out = unpack(
        archive(
            tmp_path / "a.zip",
            (entry("bin/run.sh", 0o104755), b"#!/bin/sh\n"),
            (entry("bin/link", 0o120777), b"run.sh"),
            (entry("empty/", 0o040755), b""),
            (entry("plain.txt", 0, system=0), b"x"),
        )
    )
    assert (out / "bin/run.sh").stat().st_mode & 0o7777 == 0o755
    assert (out / "bin/run.sh").stat().st_mtime == 1714979290
    assert os.readlink(out / "bin/link") == "run.sh"
    assert (out / "empty").is_dir()
    assert (out / "plain.txt").stat().st_mode & 0o7777 == 0o644


HOSTILE: dict[str, list[tuple[zipfile.ZipInfo, bytes]]] = {
    "climbs": [(entry("../evil"), b"x")],
    "climbs later": [(entry("a/b/../../../evil"), b"x")],
    "absolute": [(entry("/tmp/evil"), b"x")],
    "backslash": [(entry("..\\evil"), b"x")],
    "drive": [(entry("C:\\evil"), b"x")],
    "link out": [(entry("l", 0o120777), b"/etc")],
    "link up": [(entry("a/l", 0o120777), b"../../x")],
    "link through link": [(entry("l", 0o120777), b"."), (entry("l/x"), b"x")],
    "link chain": [(entry("a/b", 0o120777), b".."), (entry("c", 0o120777), b"a/b/../..")],
    "empty link": [(entry("l", 0o120777), b"")],
    "device": [(entry("dev", 0o020666), b"")],
    "pipe": [(entry("pipe", 0o010666), b"")],
    "own marker": [(entry(".sync_success"), b"{}")],
    "own staging": [(entry(".torchctl-staging/journal.json"), b"[]")],
    "file below file": [(entry("a"), b""), (entry("a/b"), b"")],
    "long name": [(entry("x" * 300), b"")],
    "long path": [(entry("x/" * 600 + "y"), b"")],
    "only the root": [(entry("./"), b""), (entry("../"), b"")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_nothing_is_outside(name: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    file = archive(place / "a.zip", *HOSTILE[name])
    with pytest.raises(Refused):
        unpack(file)
    assert sorted(os.listdir(place)) == ["a.d", "a.zip"]
    assert os.listdir(tmp_path) == ["place"]


def test_a_bomb_stops_within_its_limits_and_two_seconds(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file, file.open("zeros", "w") as out:
        for _ in range(200):
            out.write(bytes(1 << 20))
    began = time.process_time()  # of its own: what others do meanwhile is not its fault
    with pytest.raises(Refused, match="100 times its size"):
        unpack(tmp_path / "a.zip")
    assert time.process_time() - began < 2


def test_a_bomb_that_lies_about_its_size_stops_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(8 << 20))
    data = bytearray((tmp_path / "a.zip").read_bytes())
    for sign, offset in ((b"PK\1\2", 24), (b"PK\3\4", 22)):
        struct.pack_into("<L", data, data.index(sign) + offset, 10)
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(Refused):
        unpack(tmp_path / "a.zip", Limits(max_bytes=1 << 20))
    assert sum(f.stat().st_size for f in (tmp_path / "a.d").rglob("*")) <= 1 << 20


def test_entries_that_share_their_bytes_count_each(tmp_path: Path) -> None:
    file = archive(tmp_path / "a.zip", (entry("a0"), bytes(1 << 20)))
    data = file.read_bytes()
    start = data.index(b"PK\1\2")
    directory, end = data[start : data.index(b"PK\5\6")], bytearray(data[data.index(b"PK\5\6") :])
    copies = b"".join(directory.replace(b"a0", b"%c%c" % (97 + i // 26, 97 + i % 26)) for i in range(200))
    struct.pack_into("<HHL", end, 8, 200, 200, len(copies))
    file.write_bytes(data[:start] + copies + bytes(end))
    with pytest.raises(Refused):
        unpack(file)


def test_too_many_entries_are_refused_before_the_table_is_read(tmp_path: Path) -> None:
    file = archive(tmp_path / "a.zip", *[(entry(f"f{i}"), b"") for i in range(300)])
    with pytest.raises(Refused, match="300 entries"):
        unpack(file, Limits(max_entries=299))
    assert os.listdir(tmp_path / "a.d") == []


def test_the_number_of_bytes_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="more than 999 bytes"):
        unpack(archive(tmp_path / "a.zip", (entry("a"), os.urandom(1000))), Limits(max_bytes=999))


@pytest.mark.parametrize("damage", ["truncated", "not a zip", "flipped", "empty", "encrypted", "unknown method"])
def test_a_damaged_archive_is_refused_in_words(damage: str, tmp_path: Path) -> None:
    file = archive(tmp_path / "a.zip", (entry("a"), b"hello world" * 100))
    data = bytearray(file.read_bytes())
    if damage == "truncated":
        data = data[:-30]
    elif damage == "not a zip":
        data = bytearray(b"<html>login</html>")
    elif damage == "flipped":
        data[40] ^= 0xFF
    elif damage == "empty":
        data.clear()
    else:
        at = data.index(b"PK\1\2")
        struct.pack_into("<H", data, at + (8 if damage == "encrypted" else 10), 1 if damage == "encrypted" else 77)
    file.write_bytes(data)
    with pytest.raises(Refused):
        unpack(file)


@settings(max_examples=examples(150))
@given(st.data())
def test_flipping_bytes_of_an_archive_never_writes_outside(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory, "place")
        place.mkdir()
        file = archive(
            place / "a.zip", (entry("d/a"), b"x" * 50), (entry("d/l", 0o120777), b"../d/a"), (entry("e/", 0o40755), b"")
        )
        content = bytearray(file.read_bytes())
        for _ in range(data.draw(st.integers(1, 6))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from(b"./\0a\xff\x01"))
        file.write_bytes(content)
        with contextlib.suppress(Refused):
            unpack(file)
        assert sorted(os.listdir(place)) == ["a.d", "a.zip"]
        assert os.listdir(directory) == ["place"]


def test_second_zip64_record_hides_no_long_table_of_contents(tmp_path: Path) -> None:
    """zipfile reads the one before the locator, or the one that it points at, and then all that it announces."""
    harmless, huge = (struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, n, 0) for n in (0, 2**30))
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    for number, (first, second) in enumerate(((harmless, huge), (huge, harmless))):
        file = tmp_path / f"{number}.zip"
        file.write_bytes(first + second + struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1) + end)
        with pytest.raises(Refused, match="a table of contents of 1073741824 bytes: too many"):
            unpack(file)


@pytest.mark.parametrize(
    ("entries", "length", "says"),
    [
        (1, 2**30, "1 entries and a table of contents of 1073741824"),
        (60_000, 0, "60000 entries"),
        (1, 2**32 - 1, "1 entries and a table of contents of 4294967295"),
    ],
)
def test_zip64_record_hides_nothing_of_the_archive_end(tmp_path: Path, entries: int, length: int, says: str) -> None:
    """zipfile may go by it where no record stands right before the locator, wherever that points."""
    harmless = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, 0, 0)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, entries, entries, length, 0, 0)
    file = tmp_path / "a.zip"
    file.write_bytes(harmless + b"not a record" + struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1) + end)
    with pytest.raises(Refused, match=says):
        unpack(file, Limits(max_entries=50_000))
