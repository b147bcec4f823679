"""A workspace that is one file on its claim: workers get the same tree as from files, and nothing that was changed."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from receivers import TOKEN, TREE, contents, cutting, plant, receiving
from trees import NAMES, TREES
from trees import plant as plant_modes

from torchctl.client.errors import Unreachable as NotReached
from torchctl.client.tree import scan
from torchctl.client.upload import Sent, upload
from torchctl.workspace.byhand import unpack_by_hand
from torchctl.workspace.copies import list_tree, tar_chunks
from torchctl.workspace.core import PACK, Limits
from torchctl.workspace.errors import Refused, Unreachable
from torchctl.workspace.fetch import fetch
from torchctl.workspace.handout import copy
from torchctl.workspace.marker import read_marker
from torchctl.workspace.pull import pull
from torchctl.workspace.request import FetchRequest
from torchctl.workspace.serve import application, running
from torchctl.workspace.staging import Staging
from torchctl.workspace.steps import drive
from torchctl.workspace.store import Store
from torchctl.workspace.tree import digest

LIMITS = Limits()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = plant(tmp_path / "source", TREE)
    (place / "train.py").chmod(0o755)
    return place


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


async def sent(source: Path, claim: Path, **options: Any) -> Sent:
    async with receiving(claim, packed=True, **options) as (url, _):
        return await upload(url, TOKEN, scan(source))


def names(claim: Path) -> set[str]:
    return set(os.listdir(claim)) - {"lost+found"}


async def test_upload_is_one_file_and_a_marker(source: Path, claim: Path) -> None:
    found = await sent(source, claim)
    assert names(claim) == {PACK, ".sync_success"}
    assert (claim / PACK).stat().st_mode & 0o777 == 0o644
    marker = read_marker(claim)
    assert marker is not None
    assert marker.revision == marker.digest == found.revision == (await drive(digest(source, LIMITS))).digest
    assert (marker.files, marker.bytes) == (found.files, found.bytes) == (7, 700_028)


async def test_worker_copies_the_tree_from_the_pack(source: Path, claim: Path, target: Path) -> None:
    await sent(source, claim)
    marker = await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert contents(target) == contents(source)
    assert marker == read_marker(target) == read_marker(claim)
    assert (await drive(digest(target, LIMITS))).digest == marker.digest
    assert int((target / "train.py").stat().st_mtime) == int((claim / PACK).stat().st_mtime)


async def test_worker_pulls_the_tree_that_is_served_from_the_pack(source: Path, claim: Path, target: Path) -> None:
    await sent(source, claim)
    app = application(claim, limits=LIMITS, key="key")
    async with running(app, host="127.0.0.1", port=0) as port:
        marker = await pull(f"http://127.0.0.1:{port}/archive/key", target, timeout_s=10, limits=LIMITS)
    assert contents(target) == contents(source)
    assert marker == read_marker(target)


@pytest.mark.parametrize("after", [1, 500, 900, 5000, 70_000, 400_000, 700_900])
async def test_upload_to_a_pack_resumes_after_a_cut(after: int, source: Path, claim: Path, target: Path) -> None:
    cuts = iter([after, 2 * after, 4 * after])
    async with receiving(claim, packed=True) as (url, _), cutting(url, lambda: next(cuts, None)) as (broken, relay):
        await upload(broken, TOKEN, scan(source))
    assert relay.connections > 1
    await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert contents(target) == contents(source)


@settings(max_examples=examples(40))
@given(tree=st.dictionaries(NAMES, TREES, max_size=4), start=st.integers(0, 4000), changed=st.binary(max_size=20))
async def test_any_tree_survives_pack_copy_and_stream(tree: object, start: int, changed: bytes) -> None:
    """Also as the second tree of the claim; and the stream is the same from wherever it is read."""
    with tempfile.TemporaryDirectory() as directory:
        source, claim, target = (Path(directory, name) for name in ("source", "claim", "target"))
        plant_modes(source, tree)
        claim.mkdir()
        await sent(source, claim)
        if not (source / "changed").is_dir():
            (source / "changed").write_bytes(changed)
        found = await sent(source, claim)
        assert found.sent <= len(changed)
        target.mkdir()
        await copy(claim, target, timeout_s=10, limits=LIMITS)
        assert contents(target) == contents(source)
        listing = list_tree(claim, LIMITS)
        whole = b"".join(tar_chunks(claim, listing))
        assert len(whole) == listing.size
        assert b"".join(tar_chunks(claim, listing, start)) == whole[start:]


async def test_content_of_an_earlier_pack_is_not_sent_again(source: Path, claim: Path, target: Path) -> None:
    await sent(source, claim)
    shutil.move(source / "big.bin", source / "moved.bin")
    (source / "pkg/model.py").write_bytes(b"M = 22\n")
    assert (await sent(source, claim)).sent == 7
    await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert contents(target) == contents(source)


async def test_damaged_content_of_an_earlier_pack_is_sent_again(source: Path, claim: Path, target: Path) -> None:
    await sent(source, claim)
    with (claim / PACK).open("r+b") as file:
        file.seek(1000)
        file.write(b"damaged")
    (source / "train.py").write_bytes(b"print(2)\n")
    assert (await sent(source, claim)).sent == 700_009
    await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert contents(target) == contents(source)


async def test_content_of_the_store_is_not_sent_to_a_pack(source: Path, tmp_path: Path) -> None:
    """Another claim, another receiver, one shared cache."""
    for number, expected in enumerate((700_022, 7)):
        claim, target = tmp_path / f"claim-{number}", tmp_path / f"target-{number}"
        claim.mkdir()
        target.mkdir()
        store = Store(tmp_path / "cache", max_bytes=10**9)
        assert (await sent(source, claim, store=store)).sent == expected
        await copy(claim, target, timeout_s=10, limits=LIMITS)
        assert contents(target) == contents(source)
        (source / "pkg/model.py").write_bytes(b"M = 22\n")


async def test_store_that_lost_content_is_asked_anew(source: Path, tmp_path: Path, target: Path) -> None:
    claims = [tmp_path / "one", tmp_path / "two"]
    for claim in claims:
        claim.mkdir()
    await sent(source, claims[0], store=Store(tmp_path / "cache", max_bytes=10**9))
    (pack,) = (tmp_path / "cache").glob("*.pack")
    with pack.open("r+b") as file:
        file.write(b"damaged")
    found = await sent(source, claims[1], store=Store(tmp_path / "cache", max_bytes=10**9))
    assert found.sent == 700_022
    await copy(claims[1], target, timeout_s=10, limits=LIMITS)
    assert contents(target) == contents(source)


async def test_tree_of_files_takes_the_place_of_a_pack(source: Path, claim: Path) -> None:
    await sent(source, claim)
    (source / "train.py").write_bytes(b"print(2)\n")
    async with receiving(claim) as (url, _):
        found = await upload(url, TOKEN, scan(source))
    assert found.sent == 9  # the rest is in the pack
    assert contents(claim) == contents(source)
    assert not (claim / PACK).exists()


async def test_pack_takes_the_place_of_a_tree_of_files(source: Path, claim: Path, target: Path) -> None:
    async with receiving(claim) as (url, _):
        await upload(url, TOKEN, scan(source))
    (source / "train.py").write_bytes(b"print(2)\n")
    assert (await sent(source, claim)).sent == 9
    assert names(claim) == {PACK, ".sync_success"}
    await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert contents(target) == contents(source)


async def test_archive_by_hand_takes_the_place_of_a_pack(source: Path, claim: Path, target: Path) -> None:
    await sent(source, claim)
    (source / "odd name\n\udcff").unlink()
    (source / "pkg/latest").unlink()
    (source / "train.py").chmod(0o644)
    shutil.make_archive(str(claim / "workspace"), "zip", source)
    await unpack_by_hand(claim, limits=LIMITS)
    assert not (claim / PACK).exists()
    assert contents(claim) == contents(source)
    await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert contents(target) == contents(source)


def damage(pack: Path, how: str) -> None:
    size = pack.stat().st_size
    match how:
        case "shorter":
            os.truncate(pack, size - 1)
        case "empty":
            os.truncate(pack, 0)
        case "longer":
            with pack.open("ab") as file:
                file.write(b"x")
        case "link":
            pack.rename(pack.with_name("elsewhere"))
            pack.symlink_to("elsewhere")
        case "pipe":
            pack.unlink()
            os.mkfifo(pack)
        case "directory":
            pack.unlink()
            pack.mkdir()
        case _:
            with pack.open("r+b") as file:
                file.seek({"content": 1000, "manifest": size - 100, "tail": size - 2, "magic": size - 16}[how])
                file.write(b"\xff")


DAMAGES = ["shorter", "empty", "longer", "link", "pipe", "directory", "content", "manifest", "tail", "magic"]


@pytest.mark.parametrize("how", DAMAGES)
async def test_damaged_pack_never_reaches_a_worker(
    how: str, source: Path, claim: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchctl.workspace.handout._TRIES", 1)
    await sent(source, claim)
    damage(claim / PACK, how)
    with pytest.raises(Unreachable):
        await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert read_marker(target) is None
    assert contents(target) == {}


@pytest.mark.parametrize("how", DAMAGES)
async def test_damaged_pack_does_not_stop_the_next_upload(how: str, source: Path, claim: Path, target: Path) -> None:
    await sent(source, claim)
    damage(claim / PACK, how)
    (source / "train.py").write_bytes(b"print(2)\n")
    await sent(source, claim)
    await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert contents(target) == contents(source)


async def test_damaged_content_that_is_served_is_never_taken(source: Path, claim: Path, target: Path) -> None:
    await sent(source, claim)
    damage(claim / PACK, "content")
    app = application(claim, limits=LIMITS, key="key")
    async with running(app, host="127.0.0.1", port=0) as port:
        with pytest.raises(Unreachable, match=r"more than 1 s"):
            await pull(f"http://127.0.0.1:{port}/archive/key", target, timeout_s=1, limits=LIMITS, first_pause_s=0.01)
    assert read_marker(target) is None


async def test_worker_refuses_a_pack_beyond_its_limits(source: Path, claim: Path, target: Path) -> None:
    await sent(source, claim)
    with pytest.raises(Refused, match="more than 1000 bytes"):
        await copy(claim, target, timeout_s=10, limits=Limits(max_bytes=1000))
    assert read_marker(target) is None


async def test_claim_with_a_pack_is_no_source_of_files(source: Path, claim: Path) -> None:
    """Whoever mounts it would find none."""
    await sent(source, claim)
    with pytest.raises(Refused, match=r"as one file, \.torchctl-pack"):
        await fetch(FetchRequest(source="existing", root=claim, timeout_s=10), environ={})


async def test_another_source_takes_the_place_of_a_pack(source: Path, claim: Path) -> None:
    await sent(source, claim)
    staging = Staging(claim)
    staging.open()
    assert not (claim / PACK).exists()
    assert read_marker(claim) is None


async def test_large_upload_to_a_full_volume_ends(source: Path, claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the earlier pack is on the claim then."""
    await sent(source, claim)
    before = (claim / PACK).read_bytes()
    (source / "more").write_bytes(os.urandom(600_000))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(Exception, match="the volume is full"):
        await sent(source, claim)
    assert names(claim) == {PACK, ".sync_success"}
    assert (claim / PACK).read_bytes() == before


async def test_abandoned_upload_leaves_the_pack_of_before(
    source: Path, claim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sent(source, claim)
    before = (claim / PACK).read_bytes()
    (source / "more").write_bytes(os.urandom(600_000))
    cuts = iter([100_000])  # the connections after that break at once
    async with receiving(claim, packed=True) as (url, _), cutting(url, lambda: next(cuts, 1)) as (broken, _):
        monkeypatch.setattr("torchctl.client.upload._SILENCE_S", 0.0)
        with pytest.raises(NotReached):
            await upload(broken, TOKEN, scan(source))
    assert names(claim) == {PACK, ".sync_success"}
    assert (claim / PACK).read_bytes() == before
