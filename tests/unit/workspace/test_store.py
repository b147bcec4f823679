"""The store: bounded, shared by several writers, and never believed."""

import hashlib
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchctl.workspace.store import Place, Store, Vanished


def sha(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def keep(store: Store, *contents: bytes) -> None:
    pack = store.pack(sum(map(len, contents)))
    assert pack is not None
    for content in contents:
        pack.write(content)
        pack.end(sha(content))
    pack.close()


def find(store: Store, *contents: bytes) -> dict[bytes, Place]:
    return store.find({sha(content): len(content) for content in contents})


def test_content_is_found_by_any_store_of_the_directory(tmp_path: Path) -> None:
    keep(Store(tmp_path / "s", max_bytes=10**6), b"one", b"two", b"three")
    store = Store(tmp_path / "s", max_bytes=10**6)
    found = find(store, b"two", b"three", b"four")
    assert set(found) == {sha(b"two"), sha(b"three")}
    assert b"".join(store.read(found[sha(b"three")], sha(b"three"))) == b"three"
    store.close()


def test_threads_read_at_once_from_several_packs(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=10**9)
    contents = [b"%d" % number * 200_000 for number in range(40)]
    for begin in range(0, 40, 10):
        keep(store, *contents[begin : begin + 10])
    found = find(store, *contents)
    with ThreadPoolExecutor(8) as threads:
        read = list(threads.map(lambda content: b"".join(store.read(found[sha(content)], sha(content))), contents))
    store.close()
    assert read == contents


def test_two_writers_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=10**6)
    one, two = store.pack(3), store.pack(3)
    assert one
    assert two
    for pack, content in ((one, b"one"), (two, b"two")):
        pack.write(content)
        pack.end(sha(content))
    one.close()
    two.close()
    assert len(find(store, b"one", b"two")) == 2


def test_half_a_file_and_an_abandoned_pack_are_never_found(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=10**6)
    pack = store.pack(10)
    assert pack
    pack.write(b"one")
    pack.end(sha(b"one"))
    pack.write(b"tw")
    assert find(store, b"one") == {}  # a crash now leaves a file of another name
    pack.close()
    assert set(find(store, b"one", b"tw")) == {sha(b"one")}
    (tmp_path / "x.part").write_bytes(b"of a pod that died a day ago")
    os.utime(tmp_path / "x.part", (1, 1))
    store.trim()
    assert not (tmp_path / "x.part").exists()


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "zeros", "gone", "count"])
def test_damaged_content_is_never_handed_out(damage: str, tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=10**6)
    keep(store, b"hello world" * 10)
    found = find(store, b"hello world" * 10)
    (pack,) = tmp_path.glob("*.pack")
    data = bytearray(pack.read_bytes())
    if damage == "flip":
        data[3] ^= 1
    elif damage == "truncate":
        del data[20:]
    elif damage == "zeros":
        data = bytearray(len(data))
    elif damage == "count":
        data[-8:] = b"\xff" * 8
    else:
        data.clear()
    pack.write_bytes(data)
    if damage == "gone":
        pack.unlink()
    place = found[sha(b"hello world" * 10)]
    if damage == "count":
        assert find(store, b"hello world" * 10) == {}
    else:
        with pytest.raises(Vanished):
            b"".join(store.read(place, sha(b"hello world" * 10)))
        store.close()
        assert list(tmp_path.glob("*.pack")) == []


def test_a_pack_that_cannot_be_opened_is_not_thrown_away(tmp_path: Path) -> None:
    """As when the process has no file descriptor left: another one reads it."""
    store = Store(tmp_path, max_bytes=10**6)
    keep(store, b"one")
    place = find(store, b"one")[sha(b"one")]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
    try:
        with pytest.raises(Vanished, match="Too many open files"):
            next(store.read(place, sha(b"one")))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert find(store, b"one") == {}, "it is sent again"
    assert b"".join(store.read(place, sha(b"one"))) == b"one"
    store.close()


def test_a_pack_that_cannot_be_read_is_not_thrown_away(tmp_path: Path) -> None:
    """As when a network volume is away for a moment."""
    store = Store(tmp_path, max_bytes=10**6)
    keep(store, b"one")
    place = find(store, b"one")[sha(b"one")]
    descriptor = store._descriptor(place.pack)
    kept, folder = os.dup(descriptor), os.open(tmp_path, os.O_RDONLY)
    os.dup2(folder, descriptor)  # to read a directory is an error
    with pytest.raises(Vanished, match="Is a directory"):
        next(store.read(place, sha(b"one")))
    os.dup2(kept, descriptor)
    os.close(kept)
    os.close(folder)
    assert find(store, b"one") == {}
    assert b"".join(store.read(place, sha(b"one"))) == b"one"
    store.close()


def test_least_recently_used_pack_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path, max_bytes=3000)
    for number in range(4):
        keep(store, bytes([number]) * 600)
        (pack,) = [p for p in tmp_path.glob("*.pack") if p.stat().st_mtime > 10**6]
        os.utime(pack, (number + 1, number + 1))
    find(store, bytes([0]) * 600)  # used
    keep(store, b"x" * 1200)
    assert len(find(store, bytes([0]) * 600, bytes([1]) * 600, bytes([3]) * 600, b"x" * 1200)) == 3
    assert find(store, bytes([1]) * 600) == {}
    assert sum(p.stat().st_size for p in tmp_path.glob("*")) <= 3000


def test_what_is_larger_than_the_store_is_not_kept(tmp_path: Path) -> None:
    assert Store(tmp_path, max_bytes=100).pack(101) is None
    assert os.listdir(tmp_path) == []


def test_volume_that_fails_ends_the_pack_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path, max_bytes=10**6)
    pack = store.pack(3)
    assert pack
    assert pack._file
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, pack._file.fileno())
    os.close(full)
    pack.write(b"one")
    pack.end(sha(b"one"))
    pack.close()
    assert "the store is not used" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_lists_of_files_take_room_and_go_too(tmp_path: Path) -> None:
    store, manifest = Store(tmp_path / "s", max_bytes=10_000), tmp_path / "manifest"
    trees = []
    for number in range(20):
        manifest.write_bytes(bytes([number]) * 1000)
        trees.append(hashlib.sha256(manifest.read_bytes()).hexdigest())
        store.remember(trees[-1], manifest)
    assert sum(file.stat().st_size for file in (tmp_path / "s").iterdir()) <= 10_000
    assert store.recall(trees[-1], tmp_path / "newest")
    assert (tmp_path / "newest").read_bytes() == bytes([19]) * 1000
    assert not store.recall(trees[0], tmp_path / "oldest")


def test_what_is_no_plain_file_is_not_recalled(tmp_path: Path) -> None:
    store, tree = Store(tmp_path / "s", max_bytes=10**6), sha(b"one").hex()
    (tmp_path / "one").write_bytes(b"one")
    (tmp_path / "s" / f"{tree}.tree").symlink_to(tmp_path / "one")
    assert not store.recall(tree, tmp_path / "out")
    (tmp_path / "s" / f"{tree}.tree").unlink()
    os.mkfifo(tmp_path / "s" / f"{tree}.tree")
    assert not store.recall(tree, tmp_path / "out")
