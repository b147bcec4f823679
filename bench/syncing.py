"""One initial sync in a process of its own: `python -m bench.syncing KUBECONFIG torchctl|kubernetes-asyncio|...`.

Prints a JSON document. The process connects and asks for something small first; the clock starts after that.
"""

import asyncio
import gc
import importlib
import json
import resource
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio

BEAT_S = 0.001
READ = 2**18
ENDS = (b"k8s.io/initial-events-end", b"\r\n0\r\n\r\n")
"""Of a streaming list, and of an answer that comes in chunks."""
TAIL = 2**12
"""The last bytes, among which one of them is."""

Sync = Callable[[str], Awaitable[dict[str, Any]]]


class Heartbeat:
    """Finds the longest time for which the event loop ran nothing else, by the wall clock and by this thread's CPU.

    Where other processes compete for the machine the wall says what happened, and the CPU time whose doing it was.
    """

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0
        self._last = time.monotonic(), time.thread_time()
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        now = time.monotonic(), time.thread_time()
        self.wall_s = max(self.wall_s, now[0] - self._last[0] - BEAT_S)
        self.cpu_s = max(self.cpu_s, now[1] - self._last[1])
        self._last = now
        self._loop.call_later(BEAT_S, self._beat)


async def timed(sync: Callable[[], Awaitable[int]]) -> dict[str, Any]:
    """Runs `sync`, which says how many objects it holds, with everything that is measured beside it."""
    gc.collect()
    before = resident()
    heart = Heartbeat()
    wall, cpu = time.monotonic(), time.process_time()
    objects = await sync()
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    await asyncio.sleep(2 * BEAT_S)
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "stall_ms": 1000 * heart.wall_s,
        "stall_cpu_ms": 1000 * heart.cpu_s,
        "objects": objects,
        "rss_bytes_per_object": (resident() - before) / max(1, objects),
        "peak_rss_mib": peak() / 2**20,
    }


def resident() -> int:
    """Bytes of resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> int:
    """The most resident memory, in bytes, that this program had; unlike getrusage's, without its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


async def torchctl(kubeconfig: str) -> dict[str, Any]:
    """An informer with the product's index, from nothing to synced."""
    from torchctl.api.kube import POD
    from torchctl.controllers.job.observe import BY_JOB, by_job
    from torchctl.runtime.cache.cache import Cache
    from torchctl.runtime.client.client import connect
    from torchctl.runtime.client.config import load_connection
    from torchctl.runtime.kinds import LEASE
    from torchctl.runtime.logging import configure
    from torchctl.runtime.memory import relax
    from torchctl.runtime.settings import LogSettings

    configure(LogSettings(level="warning"))
    relax()
    async with connect(await load_connection(kubeconfig)) as client, anyio.create_task_group() as tasks:
        await client.list_page(LEASE, limit=1)
        cache = Cache(client)
        informer = cache.register(POD, indexes={BY_JOB: by_job})

        async def sync() -> int:
            await tasks.start(cache.run)
            await cache.wait_synced(600.0)
            return len(informer.reader)

        result = await timed(sync)
        tasks.cancel_scope.cancel()
    return result


async def peer(kubeconfig: str) -> dict[str, Any]:
    """kubernetes-asyncio's typed list of all pods."""
    config: Any = importlib.import_module("kubernetes_asyncio.config")
    client: Any = importlib.import_module("kubernetes_asyncio.client")
    await config.load_kube_config(kubeconfig)
    async with client.ApiClient() as api:
        core = client.CoreV1Api(api)
        await client.CoordinationV1Api(api).list_lease_for_all_namespaces(limit=1)
        kept: list[Any] = []

        async def sync() -> int:
            kept.append(await core.list_pod_for_all_namespaces())
            return len(kept[0].items)

        return await timed(sync)


async def raw_stream(kubeconfig: str) -> dict[str, Any]:
    """The bytes of a streaming list of all pods."""
    query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    return await _raw(kubeconfig, f"/api/v1/pods?{query}")


async def raw_list(kubeconfig: str) -> dict[str, Any]:
    """The bytes of one list of all pods, not compressed."""
    return await _raw(kubeconfig, "/api/v1/pods")


async def _raw(kubeconfig: str, target: str) -> dict[str, Any]:
    """Reads what the server answers, and throws it away: nobody who wants it as JSON has it sooner."""
    from torchctl.runtime.client.config import load_connection
    from torchctl.runtime.client.tls import TlsContexts
    from torchctl.runtime.clock import SystemClock

    connection = await load_connection(kubeconfig)
    host = urlsplit(connection.host)
    opened = socket.create_connection((host.hostname, host.port))
    if host.scheme == "https":
        context = TlsContexts(SystemClock()).current(connection.tls_files())
        opened = context.wrap_socket(opened, server_hostname=host.hostname)
    head = [f"GET {target} HTTP/1.1", f"Host: {host.netloc}", "Accept: application/json", "Connection: close"]
    if credentials := await connection.authorization():
        head.append(f"Authorization: {credentials}")

    async def sync() -> int:
        opened.sendall("\r\n".join([*head, "", ""]).encode())
        buffer, end = bytearray(READ), b""
        while not any(map(end.__contains__, ENDS)) and (size := opened.recv_into(buffer)):
            end = (end + buffer[max(0, size - TAIL) : size])[-TAIL:]
        return 0

    with opened:
        return await timed(sync)


async def nothing(kubeconfig: str) -> dict[str, Any]:
    """Waits for two seconds: its stall is what the machine does to a process that does nothing."""

    async def sync() -> int:
        await asyncio.sleep(2.0)
        return 0

    return await timed(sync)


SYNCS: dict[str, Sync] = {
    "torchctl": torchctl,
    "kubernetes-asyncio": peer,
    "raw stream": raw_stream,
    "raw list": raw_list,
    "nothing": nothing,
}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(SYNCS[sys.argv[2]](sys.argv[1]))))  # type: ignore[arg-type]  # they are coroutines
