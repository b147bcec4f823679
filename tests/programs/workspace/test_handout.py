"""Existing claims, waiting, copying, serving and pulling: the tree that arrives is the tree that was marked."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import pytest
from aiohttp import web
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from peaks import growing, wide
from trees import NAMES, TREES, plant

from torchctl.workspace.copies import copy_tree, list_tree, tar_chunks
from torchctl.workspace.core import Limits
from torchctl.workspace.errors import Refused, Unreachable
from torchctl.workspace.fetch import fetch
from torchctl.workspace.handout import copy, wait
from torchctl.workspace.marker import Marker, read_marker, write_marker
from torchctl.workspace.pull import pull
from torchctl.workspace.request import FetchRequest
from torchctl.workspace.serve import application, running
from torchctl.workspace.steps import drive
from torchctl.workspace.tree import digest

LIMITS = Limits()


async def adopt(root: Path, sub_path: str = "") -> Marker:
    request = FetchRequest(source="existing", root=root, sub_path=sub_path, timeout_s=30)
    return await fetch(request, environ={})


def fill(root: Path) -> None:
    (root / "pkg").mkdir()
    (root / "pkg" / "model.py").write_text("M = 1\n")
    (root / ".env").write_text("A=1\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o750)
    (root / "latest").symlink_to("pkg/model.py")
    (root / "big").write_bytes(os.urandom(3_000_000))


def snapshot(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if name in (".sync_success", "lost+found"):
            continue
        status = path.lstat()
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = (status.st_mode, int(status.st_mtime), path.read_bytes())
        else:
            found[name] = status.st_mode
    return found


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


async def test_an_existing_claim_is_digested_and_marked_and_not_touched(claim: Path) -> None:
    fill(claim)
    before = snapshot(claim)
    marker = await adopt(claim)
    assert snapshot(claim) == before
    assert marker.revision == marker.digest
    assert read_marker(claim) == marker
    (claim / ".env").write_text("A=2\n")
    assert (await adopt(claim)).digest != marker.digest


@pytest.mark.parametrize("sub_path", ["nowhere", "file", "link", "a/../b", "/abs"])
async def test_a_sub_path_that_is_no_directory_is_refused(claim: Path, sub_path: str) -> None:
    (claim / "file").touch()
    (claim / "link").symlink_to("/etc")
    with pytest.raises(Refused):
        await adopt(claim, sub_path)


async def test_the_digest_ignores_what_a_kubelet_changes_and_nothing_else(claim: Path) -> None:
    fill(claim)
    first = await drive(digest(claim, LIMITS))
    (claim / ".env").chmod(0o660)
    (claim / "pkg").chmod(0o2770)
    os.utime(claim / ".env", (1, 1))
    assert await drive(digest(claim, LIMITS)) == first
    (claim / ".env").chmod(0o760)
    assert (await drive(digest(claim, LIMITS))).digest != first.digest


async def test_wait_ends_when_the_marker_appears(claim: Path) -> None:
    marker = Marker(revision="r", digest="d", bytes=0, files=0, source="zip")
    async with anyio.create_task_group() as tasks:

        async def write() -> None:
            write_marker(claim, marker)

        tasks.start_soon(write)
        assert await wait(claim, timeout_s=10) == marker
    with pytest.raises(Unreachable, match="waiting for the workspace"):
        await wait(claim.parent, timeout_s=0.05)


async def test_a_copy_is_equal_and_is_made_once(claim: Path, target: Path) -> None:
    fill(claim)
    marker = await adopt(claim)
    assert await copy(claim, target, timeout_s=10, limits=LIMITS) == marker
    assert snapshot(target) == snapshot(claim)
    (target / "output").write_text("of the trainer")
    await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert (target / "output").exists()


async def test_copy_waits_for_the_marker_until_its_timeout(claim: Path, target: Path) -> None:
    fill(claim)
    with pytest.raises(Unreachable, match=r"more than 0\.05 s"):
        await copy(claim, target, timeout_s=0.05, limits=LIMITS)
    assert os.listdir(target) == []
    assert (await copy(claim, target, timeout_s=10, limits=LIMITS, marked=False)).files == 5


async def test_a_copy_of_a_changed_claim_never_looks_finished(
    claim: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anyio, "sleep", lambda _: anyio.lowlevel.checkpoint())
    fill(claim)
    await adopt(claim)
    (claim / ".env").write_text("B=1\n")
    with pytest.raises(Unreachable, match="sync again"):
        await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert read_marker(target) is None


async def test_a_volume_with_files_of_others_is_left_alone(claim: Path, target: Path) -> None:
    fill(claim)
    await adopt(claim)
    (target / "precious").write_text("x")
    with pytest.raises(Refused, match="'precious'"):
        await copy(claim, target, timeout_s=10, limits=LIMITS)
    assert os.listdir(target) == ["precious"]


@asynccontextmanager
async def served(root: Path, streams: int = 4, key: str = "") -> AsyncIterator[str]:
    app = application(root, limits=LIMITS, streams=streams, key=key)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/archive"
    finally:
        await runner.cleanup()


async def test_what_is_served_is_what_is_pulled(claim: Path, target: Path) -> None:
    fill(claim)
    marker = await adopt(claim)
    async with served(claim) as url:
        pulled = await pull(url, target, timeout_s=10, limits=LIMITS, expected=marker.digest)
    assert pulled.digest == marker.digest
    assert snapshot(target) == snapshot(claim)
    assert read_marker(target) == pulled


@pytest.mark.parametrize("path", ["", "/", "/other", "/0c5f", "/0C5F-9F2B", "/0c5f-9f2b/"])
async def test_who_does_not_know_the_key_gets_nothing(claim: Path, path: str) -> None:
    fill(claim)
    await adopt(claim)
    async with served(claim, key="0c5f-9f2b") as url, aiohttp.ClientSession() as http:
        async with http.get(url + path) as answer:
            assert (answer.status, "X-Workspace-Digest" in answer.headers) == (404, False)
        async with http.get(f"{url}/0c5f-9f2b") as answer:
            assert answer.status == 200


async def test_pull_waits_until_the_server_has_a_workspace(claim: Path, target: Path) -> None:
    fill(claim)
    async with served(claim) as url, anyio.create_task_group() as tasks:

        async def later() -> None:
            await adopt(claim)

        tasks.start_soon(later)
        pulled = await pull(url, target, timeout_s=10, limits=LIMITS, first_pause_s=0.02)
    assert pulled.files == 5
    with pytest.raises(Unreachable, match=r"more than 0\.2 s"):
        await pull(url, target.parent, timeout_s=0.2, limits=LIMITS, first_pause_s=0.02)


async def test_interrupted_pull_resumes_where_it_was(claim: Path, target: Path) -> None:
    fill(claim)
    marker = await adopt(claim)
    listing = list_tree(claim, LIMITS)
    data = b"".join(tar_chunks(claim, listing))
    starts = []

    async def cutting(request: web.Request) -> web.StreamResponse:
        start = int(request.headers.get("Range", "bytes=0-")[6:-1])
        starts.append(start)
        headers = {
            "X-Workspace-Digest": marker.digest,
            "X-Workspace-Marker": marker.report(),
            "Content-Length": str(len(data) - start),
        }
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        await response.prepare(request)
        await response.write(data[start : start + 1_200_000])
        if start + 1_200_000 < len(data):
            assert request.transport is not None
            request.transport.close()
        return response

    app = web.Application()
    app.router.add_get("/archive", cutting)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/archive"
    await pull(url, target, timeout_s=10, limits=LIMITS, first_pause_s=0.01)
    await runner.cleanup()
    assert len(starts) == 3
    assert starts == sorted(starts)
    assert snapshot(target) == snapshot(claim)


async def test_another_workspace_than_the_expected_one_is_refused(claim: Path, target: Path) -> None:
    await adopt(claim)
    async with served(claim) as url:
        with pytest.raises(Refused, match="is wanted"):
            await pull(url, target, timeout_s=10, limits=LIMITS, expected="sha256:other")


async def test_more_downloads_than_allowed_are_told_to_come_again(claim: Path, tmp_path: Path) -> None:
    fill(claim)
    await adopt(claim)
    async with served(claim, streams=1) as url, anyio.create_task_group() as tasks:
        for i in range(4):
            (tmp_path / str(i)).mkdir()

            async def one(place: Path = tmp_path / str(i)) -> None:
                await pull(url, place, timeout_s=20, limits=LIMITS, first_pause_s=0.02)

            tasks.start_soon(one)
    assert all(snapshot(tmp_path / str(i)) == snapshot(claim) for i in range(4))


@settings(max_examples=examples(60))
@given(tree=st.dictionaries(NAMES, TREES, max_size=4), start=st.integers(0, 4000))
async def test_any_tree_survives_copy_and_tar_stream(tree: object, start: int) -> None:
    """The stream is the same whatever the offset from which it is read."""
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "source"), Path(directory, "target")
        plant(source, tree)
        plant(target, {})
        await drive(copy_tree(source, target, LIMITS))
        assert snapshot(target) == snapshot(source)
        assert await drive(digest(target, LIMITS)) == await drive(digest(source, LIMITS))
        listing = list_tree(source, LIMITS)
        whole = b"".join(tar_chunks(source, listing))
        assert len(whole) == listing.size
        assert b"".join(tar_chunks(source, listing, start)) == whole[start:]


async def test_server_unpacks_nothing_that_is_sent_to_it(claim: Path) -> None:
    headers, bomb = {"Content-Encoding": "zstd", "Connection": "close"}, wide(2**28)
    async with running(application(claim, limits=LIMITS), host="127.0.0.1", port=0) as port:
        url = f"http://127.0.0.1:{port}/archive"
        with growing() as grown:
            async with aiohttp.ClientSession() as http, http.post(url, data=bomb, headers=headers) as said:
                await said.read()
    assert grown.bytes < 2**25
