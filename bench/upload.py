"""Uploads over loopback beside `tar | tar`, which is what `kubectl cp` runs: one large tree, and many small files.

As one file on the claim, which is what workers with a copy of their own get ("packed"), and as files ("files").

The receiver runs in a process of its own, as in its pod, and its peak memory is what the kernel says at its end. Each
side takes turns at going first. Nothing is removed before the end: ext4 makes files many times slower for a while
after many were removed. `tar` neither checks nor flushes what it writes, so its time with `sync` is shown too.
"""

import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, run
from typing import Literal

import anyio
from anyio import to_thread

from bench.figures import Figure, spread
from torchctl.client.tree import scan
from torchctl.client.upload import Progress, upload
from torchctl.testing.ports import reserve

__all__ = ["measure", "plant_large", "plant_noise", "plant_small"]

LARGE = 500 * 2**20
SMALL = 20_000
ROUNDS = 3
GOAL_RSS_MIB, GOAL_AGAIN_S, GOAL_SMALL, GOAL_LARGE = 64.0, 2.0, 3.0, 1.0
WAYS = {"packed": ("--packed",), "files": ()}
"""How an upload is kept on the claim, and the receiver's options for it."""
TOKEN = "token-of-the-benchmark"


async def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="torchctl-bench-") as name:
        place = Path(name)
        figures: list[Figure] = []
        for what, plant, goal in (("500 MB", plant_large, GOAL_LARGE), ("20,000 small files", plant_small, GOAL_SMALL)):
            source = place / f"{len(figures)}"
            await to_thread.run_sync(plant, source)
            figures += await _pairs(what, source, goal)
            for way in WAYS:
                figures += await _again(what, source, way)
        return figures


async def _pairs(what: str, source: Path, goal: float) -> list[Figure]:
    theirs, flushed = list[float](), list[float]()
    ours: dict[str, list[float]] = {way: [] for way in WAYS}
    peaks: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(ROUNDS):
        for side in (*WAYS, "tar")[:: 1 if number % 2 == 0 else -1]:
            target = source.with_name(f"{source.name}-{side}-{number}")
            target.mkdir()
            if side == "tar":
                piped, synced = await to_thread.run_sync(_tar, source, target)
                theirs.append(piped)
                flushed.append(synced)
            else:
                wall, peak = await _upload(source, target, *WAYS[side])
                ours[side].append(wall)
                peaks[side].append(peak)
    found = [
        _figure(f"tar | tar of {what}", theirs, "s", None),
        _figure(f"tar | tar of {what}, and sync", flushed, "s", None),
    ]
    for way in WAYS:
        ratios = [tar / own for tar, own in zip(theirs, ours[way], strict=True)]
        durable = [tar / own for tar, own in zip(flushed, ours[way], strict=True)]
        found += [
            _figure(f"upload of {what}, {way}", ours[way], "s", None),
            _figure(f"times faster than tar | tar, {what}, {way}", ratios, "x", goal, higher=True),
            _figure(f"times faster than tar | tar and sync, {what}, {way}", durable, "x", None, higher=True),
            _figure(f"receiver's peak memory, {what}, {way}", peaks[way], "MiB", GOAL_RSS_MIB),
        ]
    return found


async def _again(what: str, source: Path, way: str) -> list[Figure]:
    """The second upload to another claim, after one line has changed, with a cache that both receivers share."""
    cache, walls, peaks = source.with_name(f"{source.name}-cache-{way}"), list[float](), list[float]()
    for number in range(ROUNDS + 1):
        target = source.with_name(f"{source.name}-again-{way}-{number}")
        target.mkdir()
        with (source / "dir-000" / "file-000").open("ab") as file:
            file.write(b"one line\n")
        wall, peak = await _upload(source, target, f"--cache={cache}", *WAYS[way])
        if number:
            walls.append(wall)
            peaks.append(peak)
    return [
        _figure(f"second upload after one change, {what}, {way}", walls, "s", GOAL_AGAIN_S),
        _figure(f"receiver's peak memory at that, {what}, {way}", peaks, "MiB", GOAL_RSS_MIB),
    ]


async def _upload(source: Path, target: Path, *options: str) -> tuple[float, float]:
    """Seconds from the listing of the directory to the answer to the commit; MiB of the receiver."""
    async with _receiver(target, *options) as (url, peak):
        began = time.monotonic()
        tree = await to_thread.run_sync(scan, source)
        stages: dict[str, float] = {"scan": time.monotonic() - began}

        def report(progress: Progress) -> None:
            stages[progress.stage] = time.monotonic() - began

        await upload(url, TOKEN, tree, report=report)
        wall = time.monotonic() - began
        if os.environ.get("TORCHCTL_BENCH_STAGES"):
            print(stages, wall, file=sys.stderr)
    return wall, peak[0]


@asynccontextmanager
async def _receiver(target: Path, *options: str) -> AsyncGenerator[tuple[str, list[float]]]:
    with reserve(1) as (port,):
        pass
    arguments = ("workspace", "receive", f"--root={target}", f"--port={port}", "--timeout=600", *options)
    command = [sys.executable, "-m", "torchctl", *arguments]
    environ = {**os.environ, "TORCHCTL_POD_UID": TOKEN}
    process = await anyio.open_process(command, env=environ, stdin=None, stdout=DEVNULL, stderr=None)
    peak = [0.0]
    try:
        await _listening(port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, process.pid, peak)
            yield f"http://127.0.0.1:{port}", peak
            await process.wait()
            tasks.cancel_scope.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _watch(pid: int, peak: list[float]) -> None:
    """Read the peak of a process until it ends. The kernel keeps it, so the last look is what counts."""
    while True:
        with suppress(OSError, StopIteration):
            status = Path(f"/proc/{pid}/status").read_text()  # noqa: ASYNC240  # a file of the kernel does not block
            peak[0] = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
        await anyio.sleep(0.02)


async def _listening(port: int) -> None:
    with anyio.fail_after(30.0):
        while True:
            try:
                stream = await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                await anyio.sleep(0.02)
                continue
            await stream.aclose()
            return


def _tar(source: Path, target: Path) -> tuple[float, float]:
    """Seconds of a copy by way of a pipe, and of the same with a flush to the disk."""
    began = time.monotonic()
    with Popen(["tar", "cf", "-", "-C", str(source), "."], stdout=PIPE) as packing:
        run(["tar", "xmf", "-", "-C", str(target)], stdin=packing.stdout, check=True)
    piped = time.monotonic() - began
    run(["sync", "--file-system", str(target)], check=True)
    return piped, time.monotonic() - began


def plant_large(source: Path) -> None:
    """A tree of a hundred files of 5 MiB that do not shrink."""
    for number in range(100):
        content = random.Random(number).randbytes(LARGE // 100)
        _write(source / f"dir-{number % 10:03}" / f"file-{number // 10:03}", content)


def plant_small(source: Path) -> None:
    """Files of 0.2 to 8 KB of code: parts of Python's own library, each with a line of its own."""
    sizes = random.Random(1)
    library = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.rglob("*.py")))
    at = 0
    for path in _small(source):
        size = sizes.randint(200, 8000)
        at = at if at + size <= len(library) else 0
        _write(path, f"# {path.name} of {path.parent.name}\n".encode() + library[at : at + size])
        at += size


def plant_noise(source: Path) -> None:
    """Files as small, of content that does not shrink."""
    sizes = random.Random(1)
    for path in _small(source):
        _write(path, sizes.randbytes(sizes.randint(200, 8000)))


def _small(source: Path) -> Iterator[Path]:
    return (source / f"dir-{number % 200:03}" / f"file-{number // 200:03}" for number in range(SMALL))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _figure(name: str, samples: list[float], unit: str, goal: float | None, *, higher: bool = False) -> Figure:
    found = spread(samples)
    better: Literal["lower", "higher"] = "higher" if higher else "lower"
    return Figure(bench="upload", name=name, value=found["median"], unit=unit, goal=goal, better=better, detail=found)
