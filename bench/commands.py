"""CPU time of commands that people wait for: of the whole process, Python's start included.

`list` reads 1,000 jobs, in pages as from a real API server, from a server on loopback in this process.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from aiohttp import web

from bench.figures import Figure, spread
from torchctl.api.names import API_VERSION
from torchctl.testing.kubeconfig import write_kubeconfig

__all__ = ["measure"]

JOBS = 1_000
RUNS = 5
FILES = 100
HELP_GOAL_MS = 150.0
_SUBMIT = ("submit", "--dry-run", "--queue", "h100", "--gpus", "8", "python train.py")


async def measure() -> list[Figure]:
    """The median of some runs of each command."""
    with TemporaryDirectory() as directory:
        async with _api_server() as url:
            code = _code(Path(directory) / "code")
            kubeconfig = write_kubeconfig(
                Path(directory) / "kubeconfig", server=url, ca=Path(directory), user={"token": "t"}
            )
            return [
                await _figure("--help", ["--help"], goal=HELP_GOAL_MS),
                await _figure("list --help", ["list", "--help"], goal=HELP_GOAL_MS),
                await _figure(f"list of {JOBS:,} jobs", ["list", "--kubeconfig", str(kubeconfig)]),
                await _figure(
                    "submit --dry-run", [*_SUBMIT, "--kubeconfig", str(kubeconfig), "--workspace", str(code)]
                ),
            ]


def _code(directory: Path) -> Path:
    """Makes a directory of some files to submit."""
    directory.mkdir()
    for number in range(FILES):
        (directory / f"module_{number}.py").write_text("import torch\n" * 100)
    return directory


async def _figure(name: str, arguments: list[str], goal: float | None = None) -> Figure:
    await _cpu_ms(arguments)  # compiles what is not compiled yet
    samples = [await _cpu_ms(arguments) for _ in range(RUNS)]
    median = spread(samples)["median"]
    return Figure(
        bench="commands", name=f"CPU of {name}", value=median, unit="ms", goal=goal, detail={"cpu": spread(samples)}
    )


async def _cpu_ms(arguments: list[str]) -> float:
    """The CPU time of one run, as the kernel counted it."""
    program = "from torchctl.cli.kubectl import main; main()"
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    command = [sys.executable, "-c", program, *arguments]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=silent)  # noqa: ASYNC221  # it returns at once
    _, status, usage = await asyncio.to_thread(os.wait4, pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{command} failed with {os.waitstatus_to_exitcode(status)}")
    return (usage.ru_utime + usage.ru_stime) * 1000


@asynccontextmanager
async def _api_server() -> AsyncIterator[str]:
    """Yields the URL of a server that lists jobs."""
    jobs = [_job(number) for number in range(JOBS)]

    async def listed(request: web.Request) -> web.Response:
        first, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        after = first + limit
        metadata = {"resourceVersion": "1"} | ({"continue": str(after)} if after < JOBS else {})
        page = {"metadata": metadata, "items": jobs[first:after]}
        return web.Response(body=msgspec.json.encode(page), content_type="application/json")

    app = web.Application()
    app.router.add_get(f"/apis/{API_VERSION}/namespaces/default/torchrunjobs", listed)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _job(number: int) -> dict[str, Any]:
    conditions = [
        {"type": type_, "status": "True", "reason": "Ready", "message": "as it should be", "observedGeneration": 1}
        for type_ in ("Accepted", "QueueFound", "DependenciesMet", "WorkspaceReady", "Admitted", "WorkersReady")
    ]
    return {
        "metadata": {
            "name": f"job-{number:04}",
            "namespace": "default",
            "uid": f"{number:032x}",
            "creationTimestamp": "2026-03-01T08:00:00Z",
            "managedFields": [{"manager": "torchctl", "fieldsV1": {f"f:{index}": {} for index in range(60)}}],
        },
        "spec": {"jobQueue": "h100", "numNodes": 4, "command": "python train.py --epochs 100"},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "nodes": {"desired": 4, "ready": 4},
            "gpus": 32,
            "workersStatus": "4/4 running",
            "restarts": {"total": 0},
        },
    }
