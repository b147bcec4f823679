"""`exec` as a program of its own, on a terminal and without one, against an API server that runs commands here."""

import asyncio
import os
import pty
import sys
import termios
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
import yaml
from aiohttp import web

from torchctl.testing.podcommands import serve_command

JOB = {
    "apiVersion": "torchrun.ai/v1alpha1",
    "kind": "TorchrunJob",
    "metadata": {"name": "vit", "namespace": "team", "uid": "u"},
    "status": {"phase": "Running"},
}
POD = {
    "metadata": {"name": "vit-0", "namespace": "team", "uid": "p", "labels": {"torchrun.ai/attempt": "0"}},
    "status": {"phase": "Running", "containerStatuses": [{"name": "trainer", "state": {"running": {}}}]},
}


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncGenerator[Path]:
    """Leads to an API server with one job, which has one pod."""

    async def job(request: web.Request) -> web.Response:
        return web.json_response(JOB)

    async def pods(request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [POD]})

    app = web.Application()
    app.router.add_get("/apis/torchrun.ai/v1alpha1/namespaces/team/torchrunjobs/vit", job)
    app.router.add_get("/api/v1/namespaces/team/pods", pods)
    app.router.add_get("/api/v1/namespaces/team/pods/vit-0/exec", serve_command)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "team"}}],
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    yield path
    await runner.cleanup()


def command(kubeconfig: Path, *arguments: str) -> list[str]:
    plugin = str(Path(sys.executable).with_name("kubectl-torchrun"))
    return [plugin, "exec", f"--kubeconfig={kubeconfig}", "vit", *arguments]


async def test_the_exit_status_is_the_command_s(kubeconfig: Path) -> None:
    with anyio.fail_after(60):
        done = await anyio.run_process(
            command(kubeconfig, "--", "sh", "-c", "echo out; echo err >&2; exit 9"), check=False
        )
    assert (done.returncode, done.stdout, done.stderr) == (9, b"out\n", b"err\n")


async def test_standard_input_is_handed_on_if_asked(kubeconfig: Path) -> None:
    with anyio.fail_after(60):
        done = await anyio.run_process(command(kubeconfig, "-it", "--", "cat"), input=bytes(2**20))
        without = await anyio.run_process(command(kubeconfig, "--", "sh", "-c", "true"), input=b"ignored")
    assert done.stdout == bytes(2**20)
    assert without.stdout == b""


async def test_on_a_terminal_keys_arrive_as_they_are(kubeconfig: Path) -> None:
    """Ctrl-C goes to the command; the terminal is as before when it ends."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    process = await asyncio.create_subprocess_exec(
        *command(kubeconfig, "--", "sh", "-c", "echo ready; od -An -c -N3; exit 4"), stdin=theirs, stdout=theirs
    )
    said = b""
    with anyio.fail_after(60):
        while b"ready" not in said:
            said += await anyio.to_thread.run_sync(os.read, ours, 1024)
        os.write(ours, b"a\x03b")
        assert await process.wait() == 4
        while b"b" not in said.split():  # the kernel hands on what a terminal was told with a delay
            said += await anyio.to_thread.run_sync(os.read, ours, 1024)
    assert said.split() == [b"ready", b"a", b"003", b"b"]
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


async def test_a_rank_whose_pod_is_unknown_is_a_usage_error(kubeconfig: Path) -> None:
    with anyio.fail_after(60):
        done = await anyio.run_process(command(kubeconfig, "--rank=1", "--", "true"), check=False)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"--node" in done.stderr
