"""`torchctl workspace companion` as a process: a later tree is received, and launchers are told of it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from receivers import TOKEN, contents, plant
from waiting import until

from torchctl.client.reloading import late
from torchctl.client.sync import ask
from torchctl.client.tree import scan
from torchctl.client.upload import upload
from torchctl.testing.ports import reserve
from torchctl.workspace.marker import Marker, read_marker
from torchctl.workspace.staging import Staging

KEY = "4f1c-uid"


@asynccontextmanager
async def running(root: Path, port: int, upload_port: int, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "torchctl", "workspace", "companion", f"--root={root}", f"--port={port}"),
        *(f"--key={KEY}", f"--upload-port={upload_port}", f"--cache={root}/.torchctl-store", "--host=127.0.0.1", *more),
        env={**os.environ, "TORCHCTL_POD_UID": TOKEN},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.communicate()


def report(**more: Any) -> str:
    """Worker 0 of one, whose program runs."""
    return json.dumps(
        {
            "index": 0,
            "incarnation": "a",
            "started": 1,
            "attempt": 0,
            "seq": 1,
            "state": "running",
            "nodes": 1,
            "least": 1,
            "address": "127.0.0.1",
            "port": 29500,
            "world": None,
            **more,
        }
    )


async def test_later_tree_is_received_told_and_waited_for(tmp_path: Path, claim: Path) -> None:
    source = plant(tmp_path / "source", {"train.py": b"1", "data.bin": os.urandom(100_000)})
    with reserve(2) as (port, upload_port):
        pass
    url, to = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{upload_port}"
    async with running(claim, port, upload_port) as process, aiohttp.ClientSession() as http:

        async def status(path: str = "/readyz") -> int:
            try:
                async with http.get(url + path) as answer:
                    return answer.status
            except aiohttp.ClientError:
                return 0

        async def is_ready() -> bool:
            return await status() == 200

        await until(lambda: _is(status, 503))  # there is no workspace yet
        first = await upload(to, TOKEN, scan(source))
        assert await status() == 503  # it has not heard of the workers yet
        said = report(revision=first.revision, runs=first.revision)
        waits = asyncio.create_task(http.post(f"{url}/launcher/v1/{KEY}", data=said))
        await until(is_ready)
        assert await line(process) == f"companion: revision {first.revision}: the worker has it"
        plant(source, {"train.py": b"2"})
        second = await upload(to, TOKEN, scan(source))
        assert second.sent == 1  # what is there is not sent again
        async with await waits as answer:
            order = await answer.json()
        assert (order["kind"], order["revision"]) == ("take", second.revision)
        assert await status() == 503
        assert await line(process) == f"companion: revision {second.revision}: waits for worker 0 (running)"
        assert contents(claim) == contents(source)
        marker = read_marker(claim)
        assert marker is not None
        assert marker.digest == second.revision
        done = report(seq=2, revision=second.revision, runs=second.revision)
        waits = asyncio.create_task(http.post(f"{url}/launcher/v1/{KEY}", data=done))
        await until(is_ready)
        assert await line(process) == f"companion: revision {second.revision}: the worker has it"
        waits.cancel()


async def test_mounted_claim_is_changed_under_the_workers(tmp_path: Path, claim: Path) -> None:
    """Nobody has to report, and what programs have written since the companion was ready is theirs."""
    source = plant(tmp_path / "source", {"train.py": b"1", "old.py": b"1"})
    staging = Staging(claim)
    staging.open()
    plant(staging.tree, {"train.py": b"1", "old.py": b"1"})
    staging.publish(Marker(revision="r", digest="r", bytes=2, files=2, source="git"))
    with reserve(2) as (port, upload_port):
        pass
    async with running(claim, port, upload_port, "--in-place"), aiohttp.ClientSession() as http:

        async def is_ready() -> bool:
            with suppress(aiohttp.ClientError):
                async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    return answer.status == 200
            return False

        await until(is_ready)
        plant(claim, {"out/log": b"mine"})
        (source / "old.py").unlink()
        plant(source, {"train.py": b"2"})
        done = await upload(f"http://127.0.0.1:{upload_port}", TOKEN, scan(source))
        found = await ask(f"http://127.0.0.1:{port}/launcher/v1/{KEY}")
        assert not late(found, done.revision)
    assert sorted(path for path in contents(claim) if "." not in path[:1]) == ["out", "out/log", "train.py"]
    assert (claim / "train.py").read_bytes() == b"2"


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def _is(status: Any, wanted: int) -> bool:
    return bool(await status() == wanted)
