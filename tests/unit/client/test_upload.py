"""Uploads: what arrives is what was sent, over connections that break anywhere, and only what is missing is sent."""

import asyncio
import gc
import os
import shutil
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from receivers import TOKEN, TREE, contents, cutting, plant, receiving

from torchctl.client.errors import RequestRefused, Unreachable, UsageError
from torchctl.client.receiver import Receiver, Retry
from torchctl.client.tree import scan
from torchctl.client.upload import Progress, upload
from torchctl.workspace.core import Limits
from torchctl.workspace.marker import read_marker
from torchctl.workspace.steps import drive
from torchctl.workspace.store import Store
from torchctl.workspace.tree import digest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = plant(tmp_path / "source", TREE)
    (place / "train.py").chmod(0o755)
    return place


async def test_tree_arrives_whole_and_marked(source: Path, claim: Path) -> None:
    seen: list[Progress] = []
    async with receiving(claim) as (url, _):
        sent = await upload(url, TOKEN, scan(source), report=seen.append)
    assert contents(claim) == contents(source)
    marker = read_marker(claim)
    assert marker is not None
    assert marker.revision == marker.digest == sent.revision == (await drive(digest(claim, Limits()))).digest
    assert (marker.files, marker.bytes, marker.source) == (sent.files, sent.bytes, "zip") == (7, 700_028, "zip")
    assert sent.sent == 700_022  # the twin is not sent twice
    assert seen[-2] == Progress("send", 700_022, 700_022)
    assert not (claim / ".torchctl-staging").exists()


@pytest.mark.parametrize("after", [1, 100, 300, 500, 700, 900, 1500, 5000, 70_000, 200_000, 300_900])
async def test_upload_resumes_after_cut_at_byte(after: int, source: Path, claim: Path) -> None:
    """The first connection breaks there, the second twice as far on, and so forth."""
    cuts = iter([after, 2 * after, 4 * after])
    async with receiving(claim) as (url, _), cutting(url, lambda: next(cuts, None)) as (broken, relay):
        await upload(broken, TOKEN, scan(source))
    assert relay.connections > 1
    assert contents(claim) == contents(source)


CODE = "".join(f"def f{number}(x): return x * {number}\n" for number in range(60_000)).encode()
"""1.9 MB that shrink to less than a fifth."""


@pytest.mark.parametrize("after", [None, 2_000, 10_000, 30_000])
async def test_code_is_compressed_on_its_way(after: int | None, source: Path, claim: Path) -> None:
    """Also over connections that break: each goes on with what has been unpacked."""
    (source / "code.py").write_bytes(CODE)
    (source / "big.bin").unlink()
    cuts = iter([after] * 2)
    async with receiving(claim) as (url, _), cutting(url, lambda: next(cuts, None)) as (broken, relay):
        sent = await upload(broken, TOKEN, scan(source))
    assert sent.sent > len(CODE)
    assert relay.bytes < len(CODE) / 4
    assert relay.connections > (after is not None)
    assert contents(claim) == contents(source)


async def test_code_is_sent_as_it_is_without_zstd(source: Path, claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchctl.client.receiver.ENCODINGS", ())
    (source / "code.py").write_bytes(CODE)
    async with receiving(claim) as (url, _), cutting(url, lambda: None) as (whole, relay):
        await upload(whole, TOKEN, scan(source))
    assert relay.bytes > len(CODE)
    assert contents(claim) == contents(source)


async def test_code_goes_on_over_a_line_that_always_breaks(source: Path, claim: Path) -> None:
    """Each breaks within a block of zstd, of which nothing can be unpacked."""
    (source / "big.bin").write_text(os.urandom(25_000).hex())
    async with receiving(claim) as (url, _), cutting(url, lambda: 8_000) as (broken, relay):
        await upload(broken, TOKEN, scan(source))
    assert relay.connections > 3
    assert contents(claim) == contents(source)


@pytest.mark.parametrize("compresses", [True, False])
async def test_a_cut_waits_for_a_read_that_is_under_way(compresses: bool) -> None:
    """A slow disk holds nobody else up, and no thread is left that reads what the next request will read."""
    begun, go_on, waited = threading.Event(), threading.Event(), list[bool]()

    def chunks() -> Generator[bytes]:
        yield from (os.urandom(2**20) for _ in range(3))
        begun.set()
        waited.append(go_on.wait(10))
        yield b"late"

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2**20)
        assert await asyncio.to_thread(begun.wait, 10)
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        writer.transport.abort()

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Receiver(f"http://127.0.0.1:{port}", TOKEN) as receiver:
            receiver.compresses = compresses
            reading = chunks()
            with pytest.raises(Retry):
                await receiver.send("0" * 64, 0, 3 * 2**20 + 4, reading, lambda size: None)
            assert waited == [True]
            reading.close()  # which fails while another thread runs it


async def test_a_file_that_cannot_be_read_ends_the_request() -> None:
    """With its own error, whatever the connection says."""

    def chunks() -> Iterator[bytes]:
        yield bytes(2**20)
        raise UsageError("a file vanished")

    async def take(request: web.Request) -> web.Response:
        return web.json_response({"offset": len(await request.read())})

    app = web.Application(client_max_size=2**26)
    app.router.add_patch("/v1/trees/{tree}", take)
    async with TestServer(app) as server, Receiver(str(server.make_url("")), TOKEN) as receiver:
        receiver.compresses = True
        with pytest.raises(UsageError, match="vanished"):
            await receiver.send("0" * 64, 0, 2**21, chunks(), lambda size: None)


@settings(max_examples=examples(40))
@given(data=st.data())
async def test_random_trees_survive_random_cuts(data: st.DataObject) -> None:
    names = st.text(alphabet="ab.é -\n\\", min_size=1, max_size=6).filter(lambda n: n not in (".", ".."))
    leaf = st.one_of(st.binary(max_size=3000), st.none())
    tree = data.draw(st.dictionaries(st.tuples(names, names).map("/".join), leaf, max_size=12))
    cuts = iter(data.draw(st.lists(st.integers(1, 12_000), max_size=5)))
    with tempfile.TemporaryDirectory() as directory:
        source, claim = plant(Path(directory, "source"), {**tree}), plant(Path(directory, "claim"), {})
        async with receiving(claim) as (url, _), cutting(url, lambda: next(cuts, None)) as (broken, _):
            await upload(broken, TOKEN, scan(source))
        assert contents(claim) == contents(source)


async def test_second_upload_sends_only_what_changed(source: Path, tmp_path: Path) -> None:
    """Another claim, another receiver, one shared cache."""
    for number, expected in enumerate((700_022, 7)):
        claim = tmp_path / f"claim-{number}"
        claim.mkdir()
        async with receiving(claim, store=Store(tmp_path / "cache", max_bytes=10**9)) as (url, _):
            sent = await upload(url, TOKEN, scan(source))
        assert sent.sent == expected
        assert contents(claim) == contents(source)
        (source / "pkg/model.py").write_bytes(b"M = 22\n")


async def test_same_tree_is_not_sent_again(source: Path, claim: Path) -> None:
    async with receiving(claim) as (url, _):
        first = await upload(url, TOKEN, scan(source))
        again = await upload(url, TOKEN, scan(source))
    assert (again.revision, again.sent) == (first.revision, 0)


async def test_wrong_token_is_refused(source: Path, claim: Path) -> None:
    async with receiving(claim) as (url, _):
        with pytest.raises(RequestRefused, match="the token is not the one of this pod"):
            await upload(url, TOKEN + "x", scan(source))
    assert os.listdir(claim) == ["lost+found"]


async def test_file_that_changes_is_named(source: Path, claim: Path) -> None:
    tree = scan(source)
    (source / "train.py").write_bytes(b"print('changed')\n")
    async with receiving(claim) as (url, _):
        with pytest.raises(UsageError, match=r"'train.py' changed while it was read"):
            await upload(url, TOKEN, tree)


async def test_file_that_changes_behind_a_cut_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """What was read ahead of what was sent is dropped with the connection; the next request meets the error again."""
    read_ahead = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield bytes(2**26)  # more than is buffered on the way, so it is still being sent when the connection breaks
        yield b"packed ahead"
        read_ahead.set()
        raise UsageError("'train.py' changed while it was read")

    async def cut(request: web.Request) -> web.Response:
        await asyncio.to_thread(read_ahead.wait)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    app = web.Application()
    app.router.add_patch("/{path:.*}", cut)
    async with TestServer(app) as server, Receiver(str(server.make_url("")), TOKEN) as receiver:
        with pytest.raises(Retry):
            await receiver.send("0" * 64, 0, 2**26, chunks(), lambda count: None, compress=False)
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_nobody_there_is_one_line(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchctl.client.upload._SILENCE_S", 0.0)
    with pytest.raises(Unreachable, match="the receiver was not reached for 0 s"):
        await upload("http://127.0.0.1:9", TOKEN, scan(source))


async def test_what_the_claim_has_is_not_sent_and_not_copied(source: Path, claim: Path) -> None:
    async with receiving(claim) as (url, _):
        await upload(url, TOKEN, scan(source))
        before = (claim / "big.bin").stat().st_ino
        (source / "train.py").write_bytes(b"print('changed')\n")
        (source / "pkg/model.py").chmod(0o755)
        (source / "pkg/twin.py").unlink()
        sent = await upload(url, TOKEN, scan(source))
    assert sent.sent == 17
    assert (claim / "big.bin").stat().st_ino == before
    assert contents(claim) == contents(source)
    assert sent.revision == (await drive(digest(claim, Limits()))).digest


async def test_files_changed_on_the_claim_are_sent_again(source: Path, claim: Path) -> None:
    """By a program, say; also where a link took the place of a file or directory."""
    async with receiving(claim) as (url, _):
        await upload(url, TOKEN, scan(source))
        (claim / "big.bin").write_bytes(bytes(700_000))
        (claim / "train.py").unlink()
        (claim / "train.py").symlink_to(source / "train.py")
        shutil.rmtree(claim / "pkg")
        (claim / "pkg").symlink_to(source / "pkg")
        (source / "new.py").write_bytes(b"x = 1\n")
        await upload(url, TOKEN, scan(source))
    assert contents(claim) == contents(source)
