"""`torchctl workspace receive` as a process: uploads, files copied by hand, SIGKILL at any moment."""

import asyncio
import errno
import json
import os
import random
import shutil
import signal
import socket
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import pytest
from peaks import status, wide
from receivers import TOKEN, contents, plant

from torchctl.client.errors import ClientError
from torchctl.client.tree import scan
from torchctl.client.upload import upload
from torchctl.testing.ports import reserve
from torchctl.workspace.byhand import Arrival
from torchctl.workspace.core import Limits
from torchctl.workspace.errors import Refused
from torchctl.workspace.fetch import fetch
from torchctl.workspace.marker import Marker, read_marker
from torchctl.workspace.receive import receive
from torchctl.workspace.request import FetchRequest

TREE: dict[str, bytes | str | None] = {f"pkg{n % 7}/m{n}.py": os.urandom(n * 37) for n in range(120)} | {"l": "pkg1"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return plant(tmp_path / "source", TREE)


@asynccontextmanager
async def running(root: Path, port: int, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    log = root.parent / "termination-log"
    log.touch()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "torchctl", "workspace", "receive", f"--root={root}", f"--port={port}"),
        *(f"--termination-log={log}", "--timeout=60", *options),
        env={**os.environ, "TORCHCTL_POD_UID": TOKEN},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_nothing_is_unpacked_for_whoever_has_no_token(claim: Path) -> None:
    headers = {"Content-Encoding": "zstd", "Authorization": "Bearer guessed", "Connection": "close"}
    bomb = wide(2**28)
    with reserve(1) as (port,):
        pass
    async with running(claim, port) as process, aiohttp.ClientSession(headers=headers) as http:
        await _listening(port)
        before = status("VmHWM", process.pid)
        for path in ("/v1/state", f"/v1/trees/{'0' * 64}", "/nowhere"):
            async with http.put(f"http://127.0.0.1:{port}{path}", data=bomb) as said:
                assert said.status in (401, 404, 405)
                await said.read()
        assert status("VmHWM", process.pid) - before < 2**25


async def test_upload_ends_it_with_the_marker(source: Path, claim: Path, tmp_path: Path) -> None:
    with reserve(1) as (port,):
        pass
    async with running(claim, port) as process:
        await _listening(port)
        sent = await upload(f"http://127.0.0.1:{port}", TOKEN, scan(source))
        assert await process.wait() == 0
    report = json.loads((tmp_path / "termination-log").read_text())
    assert report == {
        "revision": sent.revision,
        "digest": sent.revision,
        "bytes": sent.bytes,
        "files": sent.files,
        "source": "zip",
    }
    assert contents(claim) == contents(source)


@pytest.mark.parametrize("seed", range(3))
async def test_kill_at_any_moment_is_survived(seed: int, source: Path, claim: Path, tmp_path: Path) -> None:
    """The client goes on with the next receiver of the same claim, whatever the killed one left there."""
    chance = random.Random(seed)
    with reserve(1) as (port,):
        pass
    uploading = asyncio.create_task(_insisting(f"http://127.0.0.1:{port}", source))
    for _ in range(2):
        async with running(claim, port, f"--cache={tmp_path / 'cache'}") as process:
            with anyio.move_on_after(2):
                await _listening(port)
                await asyncio.sleep(chance.uniform(0, 0.06))  # the moment is what this test varies
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()
    if read_marker(claim) is None:
        async with running(claim, port, f"--cache={tmp_path / 'cache'}") as process:
            assert await process.wait() == 0
    uploading.cancel()
    await asyncio.wait([uploading])
    assert contents(claim) == contents(source)


async def _insisting(url: str, source: Path) -> None:
    while True:
        try:
            await upload(url, TOKEN, scan(source))
        except ClientError:
            await asyncio.sleep(0.02)


async def _listening(port: int) -> None:
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        await asyncio.sleep(0.01)


async def test_other_addresses_of_the_pod_are_closed(claim: Path) -> None:
    with reserve(1) as (port,):
        pass
    async with running(claim, port):
        await _listening(port)
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.2", port)) == errno.ECONNREFUSED


def zipped(source: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w") as file:
        for path in sorted(source.rglob("*")):
            if path.is_file() and not path.is_symlink():
                file.write(path, path.relative_to(source))


async def waiting(claim: Path, revision: str = "") -> Marker:
    with reserve(1) as (port,):
        pass
    return await receive(claim, port=port, token=TOKEN, timeout_s=30, limits=Limits(), revision=revision)


async def test_archive_copied_by_hand_is_unpacked(source: Path, claim: Path, tmp_path: Path) -> None:
    (source / "l").unlink()
    zipped(source, tmp_path / "whole.zip")
    data = (tmp_path / "whole.zip").read_bytes()
    (claim / "workspace.zip").write_bytes(data[: len(data) // 2])
    receiving = asyncio.create_task(waiting(claim))
    await asyncio.sleep(0)
    shutil.copy(tmp_path / "whole.zip", claim / "workspace.zip")
    marker = await receiving
    assert marker.source == "zip"
    assert read_marker(claim) == marker
    assert contents(claim) == contents(source)


async def test_broken_archive_is_refused_after_a_while(claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchctl.workspace.byhand._BROKEN_S", 0.0)
    (claim / "workspace.zip").write_bytes(b"<html>login</html>")
    with pytest.raises(Refused, match=r"workspace\.zip is not a whole zip file"):
        await waiting(claim)


async def test_hostile_archive_copied_by_hand_is_refused(claim: Path) -> None:
    with zipfile.ZipFile(claim / "workspace.zip", "w") as file:
        file.writestr("../evil", b"x")
    with pytest.raises(Refused, match="unsafe name"):
        await waiting(claim)
    assert read_marker(claim) is None
    assert not (claim.parent / "evil").exists()


async def test_archive_of_another_revision_is_refused(source: Path, claim: Path) -> None:
    zipped(source, claim / "workspace.zip")
    with pytest.raises(Refused, match="the job waits for the revision 'sha256:77'"):
        await waiting(claim, "sha256:77")


async def test_tree_copied_and_marked_by_hand_ends_it(source: Path, claim: Path) -> None:
    """`kubectl cp` and `torchctl workspace fetch --source existing` in the same container."""
    shutil.copytree(source, claim, dirs_exist_ok=True, symlinks=True)
    receiving = asyncio.create_task(waiting(claim))
    await asyncio.sleep(0)
    marker = await fetch(FetchRequest(source="existing", root=claim, timeout_s=30), environ={})
    assert await receiving == marker


async def test_archive_within_a_workspace_is_no_new_one(claim: Path) -> None:
    """A tree may contain a file of that name; only one that was changed after the marker was copied by hand."""
    (claim / "workspace.zip").write_bytes(b"data of the program")
    marker = await fetch(FetchRequest(source="existing", root=claim, timeout_s=30), environ={})
    assert not Arrival(claim).settled()
    assert await waiting(claim) == marker
