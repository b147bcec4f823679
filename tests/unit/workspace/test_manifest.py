"""Manifests: one for each tree, and nothing else is accepted as one."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from receivers import plant

from torchctl.workspace.core import Limits, Member
from torchctl.workspace.errors import Refused
from torchctl.workspace.manifest import EMPTY, Entry, checked, entries, line
from torchctl.workspace.steps import drive
from torchctl.workspace.tree import digest

H = hashlib.sha256(b"x").hexdigest().encode()


def file(path: bytes, size: int = 1, content: bytes = H) -> bytes:
    return b"f - %d %s %s\0" % (size, content, path)


HOSTILE: dict[str, bytes] = {
    "climbs": file(b"../evil"),
    "climbs later": b"d a\0" + file(b"a/../../evil"),
    "absolute": file(b"/etc/passwd"),
    "dot": file(b"./a"),
    "empty part": b"d a\0" + file(b"a//b"),
    "trailing slash": b"d a/\0",
    "empty name": file(b""),
    "only the root": b"d .\0",
    "twice": file(b"a") * 2,
    "file and directory": file(b"a") + b"d a\0",
    "out of order": file(b"b") + file(b"a"),
    "child before parent": file(b"a/b") + b"d a\0",
    "without its directory": file(b"a/b"),
    "below a file": file(b"a") + file(b"a/b"),
    "below a link": b"l b\0a\0" + file(b"a/b"),
    "link out": b"l /etc\0a\0",
    "link up": b"l ..\0a\0",
    "link up later": b"d d\0l ../x/../..\0d/l\0",
    "empty link": b"l \0a\0",
    "link without a name": b"l b\0",
    "long link": b"l " + b"x" * 1025 + b"\0a\0",
    "long name": file(b"x" * 256),
    "long path": b"d " + b"x/" * 600 + b"y\0",
    "endless line": b"d " + b"x" * 4000,
    "own marker": file(b".sync_success"),
    "own staging": b"d .torchctl-staging\0",
    "own store": b"d .torchctl-store\0",
    "device": b"c 1 3 null\0",
    "unknown kind": b"x a\0",
    "empty line": b"\0",
    "no flag": b"f 1 %s a\0" % H,
    "other flag": b"f s 1 %s a\0" % H,
    "negative size": file(b"a", -1),
    "size with a plus": b"f - +1 %s a\0" % H,
    "size with zeros": b"f - 01 %s a\0" % H,
    "size of a number too long": b"f - %s %s a\0" % (b"9" * 19, H),
    "size that is none": b"f - ten %s a\0" % H,
    "short digest": file(b"a", 1, H[:63]),
    "large digest": file(b"a", 1, H.upper()),
    "digest that is none": file(b"a", 1, b"z" * 64),
    "newline instead of NUL": file(b"a").replace(b"\0", b"\n"),
    "cut off": file(b"a")[:-1],
    "something else": b"PK\3\4" + bytes(100),
    "text of a web page": b"<html>login</html>",
    "too many": b"".join(file(b"%05d" % n) for n in range(101)),
    "too large": file(b"a", 600) + file(b"b", 600),
    "too large at once": file(b"a", 10**17),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_manifest_is_refused(name: str) -> None:
    limits = Limits(max_entries=100, max_bytes=1000)
    with pytest.raises(Refused):
        list(checked(entries([HOSTILE[name]], limits), limits))


@given(cuts=st.lists(st.integers(1, 20)))
def test_chunks_do_not_matter(cuts: list[int]) -> None:
    whole = b"d a\0" + file(b"a/b c\n") + b"l b\0a/l\0" + file("é".encode()) + file(b"\xff")
    chunks, at = [], 0
    for cut in [*cuts, len(whole)]:
        chunks.append(whole[at : at + cut])
        at += cut
    found = list(checked(entries(chunks, Limits()), Limits()))
    assert b"".join(map(line, found)) == whole


async def test_digest_of_tree_is_sha256_of_its_manifest(tmp_path: Path) -> None:
    plant(tmp_path / "t", {"a/b": b"x", "a/l": "b", "empty": b"", "d": None})
    found = [
        Entry(Member(("a",), "directory")),
        Entry(Member(("a", "b"), "file", size=1), bytes.fromhex(H.decode())),
        Entry(Member(("a", "l"), "link", target="b")),
        Entry(Member(("d",), "directory")),
        Entry(Member(("empty",), "file"), EMPTY),
    ]
    expected = hashlib.sha256(b"".join(map(line, found))).hexdigest()
    assert (await drive(digest(tmp_path / "t", Limits()))).digest == f"sha256:{expected}"
