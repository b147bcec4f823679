"""Errands that a person sends `kubectl torchrun` on, and a cluster in which it may be killed at each of its requests.

The API server and the operator are real, the node is played. What listens in the job's sync pod, the receiver or the
companion, is a real process here, which the plugin reaches through the API server.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from forks import Forked, Forks
from gates import Gate
from jobs import Place
from launchers import LAUNCHER
from relays import relay

from torchctl.api.kube import POD, Pod
from torchctl.api.labels import JOB_NAME, JOB_UID, ROLE, ROLE_SYNC
from torchctl.api.names import SERVE_PORT, UPLOAD_PORT
from torchctl.client.tree import scan
from torchctl.client.upload import hashed
from torchctl.runtime.kinds import Key
from torchctl.testing.faults import Exchange, Interruption, Moment
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.ports import reserve

__all__ = ["Gated", "Person", "SyncPods", "digest_of", "report_of"]


async def digest_of(tree: Path) -> str:
    """The revision of a directory."""
    return f"sha256:{(await hashed(scan(tree))).name}"


async def report_of(tree: Path) -> str:
    """What a receiver says of a directory once it has it."""
    revision, listed = await digest_of(tree), scan(tree)
    counts = {"bytes": listed.bytes, "files": listed.files}
    return json.dumps({"revision": revision, "digest": revision, "source": "zip", **counts})


class Gated:
    """A fault of a proxy: each request, and each answer, passes a gate."""

    def __init__(self, gate: Gate, namespace: str) -> None:
        self._gate, self._namespace = gate, namespace

    async def at(self, moment: Moment, exchange: Exchange) -> Interruption | None:
        path = exchange.path.rpartition(f"/{self._namespace}/")[2]
        watch = "watch " if exchange.query.get("watch") else ""
        step = f"{moment.name.lower()} {watch}{exchange.method} {path}"
        return None if self._gate.passes(step) else Interruption()

    def drops(self, exchange: Exchange, line: bytes) -> bool:
        return False


@dataclass
class Person:
    """Somebody with a directory and a kubeconfig whose plugin passes a gate."""

    starts: Forks
    kubeconfig: Path
    namespace: str
    directory: Path
    scratch: Path
    runs: list[Forked] = field(default_factory=list)

    async def begins(self, *line: str) -> Forked:
        """Starts the plugin."""
        environ = {"KUBECONFIG": str(self.kubeconfig), "XDG_CACHE_HOME": str(self.scratch), "COLUMNS": "200"}
        out = self.scratch / f"plugin-{len(self.runs)}"
        self.runs.append(
            await self.starts.start(
                "kubectl-torchrun", "-n", self.namespace, *line, out=out, cwd=self.directory, environ=environ
            )
        )
        return self.runs[-1]


class SyncPods:
    """Plays the containers of sync pods: a real receiver, or a real companion, for each that runs.

    Args:
        directory: Has the claims of jobs, by their names.
        gate: What the requests of the plugin pass on their way to them.
    """

    def __init__(self, place: Place, kubelet: ScriptedKubelet, starts: Forks, directory: Path, gate: Gate) -> None:
        self._place, self._kubelet, self._starts = place, kubelet, starts
        self._directory, self._gate = directory, gate
        self._played: dict[str, asyncio.Task[None]] = {}

    def claim(self, job: str) -> Path:
        path = self._directory / f"claim-{job}"
        path.mkdir(exist_ok=True)
        return path

    def worker(self, job: str) -> Path:
        """The work directory of the worker of a job that takes up new code."""
        return self._directory / f"worker-{job}"

    @asynccontextmanager
    async def played(self) -> AsyncIterator[None]:
        """Plays until the block ends."""
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            tasks = [looking, *self._played.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            labels = f"{ROLE}={ROLE_SYNC}"
            for pod in await self._place.admin.list(POD, namespace=self._place.namespace, labels=labels):
                if pod.metadata.uid not in self._played and _runs(pod):
                    self._played[pod.metadata.uid] = asyncio.create_task(self._play(pod))
            await asyncio.sleep(0.05)

    async def _play(self, pod: Pod) -> None:
        name, job = pod.metadata.name, pod.metadata.labels[JOB_NAME]
        claim = self.claim(job)
        with reserve(2) as (upload, serve):
            pass
        common = [f"--root={claim}", f"--token={pod.metadata.uid}"]
        receive = ["torchctl", "workspace", "receive", *common, f"--port={upload}", "--termination-log=/dev/null"]
        companion = ["torchctl", "workspace", "companion", *common, f"--upload-port={upload}", f"--port={serve}"]
        companion += ["--host=127.0.0.1", f"--key={pod.metadata.labels[JOB_UID]}"]
        serves = any(status.name == "serve" for status in pod.status.container_statuses or ())
        async with AsyncExitStack() as stack:
            for there, here in ((UPLOAD_PORT, upload), (SERVE_PORT, serve)):
                port = await stack.enter_async_context(relay(self._gate, here))
                self._kubelet.ports.open[Key(self._place.namespace, name), there] = port
            if serves:
                url = f"http://127.0.0.1:{serve}/launcher/{pod.metadata.labels[JOB_UID]}"
                await stack.enter_async_context(_worker(self.worker(job), claim, url))
            program = await self._starts.start(*(companion if serves else receive), out=self._directory / name)
            stack.callback(program.kill)
            code = await program.wait(timeout_s=600)
            self._kubelet.end(self._place.namespace, name, 137 if code < 0 else code)


@asynccontextmanager
async def _worker(workdir: Path, claim: Path, url: str) -> AsyncIterator[None]:
    """A real launcher, as the only worker of a job whose program only waits."""
    await asyncio.to_thread(shutil.copytree, claim, workdir)
    options = ["--companion", url, "--index=0", "--nodes=1", "--nproc=1", "--workdir", str(workdir)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(LAUNCHER), *options, "--", "sleep", "600"
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


def _runs(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and any(
        status.name in ("fetch", "serve") and status.state.running is not None
        for status in pod.status.container_statuses or ()
    )
