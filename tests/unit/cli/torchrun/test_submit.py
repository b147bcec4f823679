"""What a person is told when a submit is interrupted, or has nothing to send."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGINT

import pytest
import yaml
from aiohttp import web
from plugin import PROGRAM

from torchctl.cli.torchrun.progress import Teller
from torchctl.client.tree import scan

DEV = {"metadata": {"name": "dev", "namespace": "default"}, "spec": {}}
NONE = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "details": {"name": "dev"}}
LINE = ["submit", "--queue", "dev", "--gpus", "0", "--name", "job", "python train.py"]


@asynccontextmanager
async def api_server(*, queue: bool) -> AsyncIterator[tuple[str, asyncio.Event, list[str]]]:
    """One that has a queue or none, and never answers the request that creates a job; tells its paths."""
    creates, asked = asyncio.Event(), list[str]()

    async def handle(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        if request.method == "POST":
            creates.set()
            await asyncio.sleep(60)
        if request.path.endswith("/torchrunqueues/dev"):
            return web.json_response(DEV if queue else NONE, status=200 if queue else 404)
        listed = {"items": [DEV | {"metadata": {"name": "other"}}], "metadata": {"resourceVersion": "1"}}
        return web.json_response(listed)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", creates, asked
    finally:
        await runner.cleanup()


async def started(url: str, directory: Path) -> asyncio.subprocess.Process:
    config = {
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "here", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here", "namespace": "default"}}],
    }
    (directory / "config").write_text(yaml.safe_dump(config))
    environment = os.environ | {"KUBECONFIG": str(directory / "config"), "XDG_CACHE_HOME": str(directory / "cache")}
    code = directory / "code"
    code.mkdir()
    (code / "train.py").write_text("print(1)")
    return await asyncio.create_subprocess_exec(
        *PROGRAM, *LINE, cwd=code, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


async def test_interrupted_creation_says_that_the_job_may_exist(tmp_path: Path) -> None:
    """The API server has the request by then, and nobody knows what becomes of it."""
    async with api_server(queue=True) as (url, creates, _):
        process = await started(url, tmp_path)
        await asyncio.wait_for(creates.wait(), 60)
        process.send_signal(SIGINT)
        _, said = await process.communicate()
    assert process.returncode == 130, said
    assert said.decode().splitlines()[-1] == (
        "The job job may have been created. The same line with --name job goes on with it. To give up: "
        "kubectl torchrun delete job -n default"
    )


async def test_unknown_queue_is_told_before_the_directory_is_read(tmp_path: Path) -> None:
    async with api_server(queue=False) as (url, _, asked):
        process = await started(url, tmp_path)
        _, said = await process.communicate()
    assert process.returncode == 4, said
    assert said.decode().splitlines() == [
        "Error: there is no TorchrunQueue dev in namespace default. Queues there: other."
    ]
    assert asked[0].endswith("/torchrunqueues/dev")


def test_empty_directory_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty" / "below").mkdir(parents=True)
    Teller("").listed(scan(tmp_path / "empty"))
    line = f"Warning: {tmp_path}/empty has no files to send: the workers get an empty directory"
    assert capsys.readouterr().err.splitlines()[-1] == line
