"""Resident memory of the operator's process with nothing to do, and after a thousand jobs."""

import time

import anyio

from bench.cluster import Cluster, OperatorProcess, cluster, operator
from bench.figures import Figure, spread
from bench.requests import run_jobs
from torchctl.testing.kubelet import ScriptedKubelet, default_nodes

__all__ = ["measure"]

JOBS = 1000
BATCH = 100
SAMPLES = 5
MIB = 2**20


async def measure() -> list[Figure]:
    """One-node jobs without workspace; all stay, finished, with their children. Then a second process starts."""
    async with cluster() as server:
        async with ScriptedKubelet(server.admin, nodes=default_nodes(2)), operator(server) as process:
            idle = await _settled(process)
            began = time.monotonic()
            for first in range(0, JOBS, BATCH):
                await run_jobs(server, [f"job-{number}" for number in range(first, first + BATCH)])
            took_s, cpu_s = time.monotonic() - began, process.cpu_s()
            full = await _settled(process)
        restarted = await _restarted(server)
    detail = {"jobs_per_s": JOBS / took_s, "operator_cpu_s_per_1000_jobs": cpu_s / JOBS * 1000}
    return [
        _figure("0 jobs", idle, {}),
        _figure(f"{JOBS} finished jobs", full, detail),
        _figure(f"{JOBS} finished jobs, process restarted", restarted, {}),
    ]


async def _restarted(server: Cluster) -> list[float]:
    async with operator(server) as process:
        return await _settled(process)


async def _settled(process: OperatorProcess) -> list[float]:
    """Samples, in MiB, once the process has used next to no CPU for two seconds."""
    while True:
        before = process.cpu_s()
        await anyio.sleep(2.0)
        if process.cpu_s() - before < 0.1:
            break
    samples = []
    for _ in range(SAMPLES):
        samples.append(process.rss() / MIB)
        await anyio.sleep(0.5)
    return samples


def _figure(what: str, samples: list[float], detail: dict[str, float]) -> Figure:
    found = spread(samples)
    return Figure(bench="memory", name=f"RSS, {what}", value=found["median"], unit="MiB", detail={**found, **detail})
