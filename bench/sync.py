"""The initial sync of ten thousand pods, beside kubernetes-asyncio's typed list of the same pods.

Each side runs in fresh processes, which take turns at going first; a round gives one ratio, the figure is the median of
the ratios. From the real API server the time includes the server's, which no client can shorten and both pay; so its
recorded answers are then served from memory too, and there the clients are alone with their work. How long the server
takes is measured as well: by a client that reads the bytes and throws them away. No sync from JSON is faster than that.
"""

import json
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import yaml

from bench.figures import Figure, spread
from bench.population import populate
from bench.replay import record
from torchctl.testing.controlplane import ControlPlane, Options
from torchctl.testing.ports import reserve

__all__ = ["measure"]

PODS = 10_000
PAIRS = 3
PEER = "kubernetes-asyncio"
RAW = {"a streaming list": "raw stream", "one list": "raw list"}
GOAL_TIMES, GOAL_STALL_MS = 50.0, 50.0
BARE = Options(flags={"kube-apiserver": ("--disable-admission-plugins=ServiceAccount",)})
"""Pods need neither nodes nor a ServiceAccount here, so that nobody else changes them."""

Samples = dict[str, list[dict[str, Any]]]


async def measure() -> list[Figure]:
    components = ("etcd", "kube-apiserver")
    with tempfile.TemporaryDirectory(prefix="torchctl-bench-") as name:
        directory = anyio.Path(name)
        async with ControlPlane(components=components, options=BARE) as plane:
            began = time.monotonic()
            await populate(plane.connection(), PODS)
            populated_s = time.monotonic() - began
            await record(plane.connection(), Path(name))
            real = await _pairs(str(plane.admin_kubeconfig))
            floors = await _floors(str(plane.admin_kubeconfig))
        size = (await (directory / "list.json").stat()).st_size / PODS
        async with _recorded(Path(name)) as kubeconfig:
            replayed = await _pairs(kubeconfig)
            idle = await _run(kubeconfig, "nothing")
    about = {"pods": PODS, "bytes_per_pod": size, "populated_s": populated_s, "stall_of_an_idle_loop": idle}
    return [
        *_figures("from the real API server", real, about),
        *(_seconds(f"bytes of {what} read and thrown away", runs, {}) for what, runs in floors.items()),
        *_figures("from its recorded answers", replayed, about),
    ]


def _figures(how: str, samples: Samples, about: dict[str, Any]) -> list[Figure]:
    ours = samples["torchctl"]
    return [
        _seconds(f"initial sync {how}", ours, {**about, "samples": samples}),
        _seconds(f"typed list of kubernetes-asyncio {how}", samples[PEER], {}),
        _ratio(f"{how}, wall", samples, "wall_s", GOAL_TIMES),
        _ratio(f"{how}, CPU of the client", samples, "cpu_s", None),
        _stall(f"longest stall of the event loop {how}", ours, "stall_ms", GOAL_STALL_MS),
        _stall(f"of this, CPU of the loop's own {how}", ours, "stall_cpu_ms", GOAL_STALL_MS),
    ]


def _seconds(name: str, runs: list[dict[str, Any]], detail: dict[str, Any]) -> Figure:
    found = spread([run["wall_s"] for run in runs])
    return Figure(bench="sync", name=name, value=found["median"], unit="s", detail={"wall_s": found, **detail})


def _ratio(name: str, samples: Samples, what: str, goal: float | None) -> Figure:
    ratios = [theirs[what] / ours[what] for ours, theirs in zip(samples["torchctl"], samples[PEER], strict=True)]
    found = spread(ratios)
    return Figure(
        bench="sync",
        name=f"times faster {name}",
        value=found["median"],
        unit="x",
        goal=goal,
        better="higher",
        detail=found,
    )


def _stall(name: str, runs: list[dict[str, Any]], what: str, goal: float) -> Figure:
    found = spread([run[what] for run in runs])
    return Figure(bench="sync", name=name, value=found["median"], unit="ms", goal=goal, detail=found)


async def _pairs(kubeconfig: str) -> Samples:
    """Alternates: ours, theirs, theirs, ours, ..."""
    samples: Samples = {"torchctl": [], PEER: []}
    for number in range(PAIRS):
        for side in samples if number % 2 == 0 else reversed(samples):
            samples[side].append(await _run(kubeconfig, side))
    return samples


async def _floors(kubeconfig: str) -> Samples:
    return {what: [await _run(kubeconfig, side) for _ in range(PAIRS)] for what, side in RAW.items()}


async def _run(kubeconfig: str, side: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.syncing", kubeconfig, side]
    done = await anyio.run_process(command, stderr=None)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@asynccontextmanager
async def _recorded(directory: Path) -> AsyncGenerator[str]:
    """A server of the recorded answers, as a process of its own; yields a kubeconfig for it."""
    with reserve(1) as (port,):
        pass
    process = await anyio.open_process([sys.executable, "-m", "bench.replay", str(directory), str(port)])
    try:
        await _listening(port)
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(port)))
        yield str(kubeconfig)
    finally:
        process.terminate()
        await process.wait()


async def _listening(port: int) -> None:
    with anyio.fail_after(30.0):
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            await anyio.sleep(0.05)


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "replay",
        "contexts": [{"name": "replay", "context": {"cluster": "replay", "user": "nobody"}}],
        "clusters": [{"name": "replay", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "nobody", "user": {}}],
    }
