"""One round: a peer starts on N Greetings that wait for it, and is measured until all are done.

The API server's audit log says when the first request to write came and the last status was answered, and how many
requests there were. CPU is counted from the first write on, so that starting is no part of it.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import anyio
import msgspec

from bench.cluster import OperatorProcess
from bench.peers.ours import GREETING
from bench.peers.programs import PEERS, environment_of
from torchctl.runtime.client.client import Client
from torchctl.testing.audit import AuditedRequest
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.process import ManagedProcess

__all__ = ["Round", "measure"]

MIB = 2**20
AT_ONCE = 16
POLL_S = 0.05
SETTLE_S = 2.0
"""What a peer does after the last status, such as applying once more because of its own ConfigMap, counts as well."""

DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Round:
    """What one peer needed for N objects."""

    objects_per_s: float
    cpu_s: float
    rss_mib: float
    writes: int
    reads: int


@dataclass
class Watched:
    """The requests of one user, as the audit log grows."""

    log: Path
    user: str
    offset: int
    first: str = ""
    last: str = ""
    done: set[str] = field(default_factory=set)
    counts: Counter[bool] = field(default_factory=Counter)
    _decoder: msgspec.json.Decoder[AuditedRequest] = field(default=msgspec.json.Decoder(AuditedRequest))

    def read(self) -> None:
        """Takes in what was written since the last call."""
        with self.log.open("rb") as log:
            log.seek(self.offset)
            whole, end, _ = log.read().rpartition(b"\n")
        self.offset += len(whole) + len(end)
        for line in whole.splitlines():
            request = self._decoder.decode(line)
            if request.user.username == self.user and request.stage == "ResponseComplete" and request.verb != "watch":
                self._count(request)

    def _count(self, request: AuditedRequest) -> None:
        self.counts[request.is_write] += 1
        if not request.is_write or request.object_ref is None:
            return
        self.first = self.first or request.request_received_timestamp
        if request.object_ref.subresource == "status" and request.object_ref.name not in self.done:
            self.done.add(request.object_ref.name)
            self.last = request.stage_timestamp

    @property
    def seconds(self) -> float:
        return (datetime.fromisoformat(self.last) - datetime.fromisoformat(self.first)).total_seconds()


async def measure(plane: ControlPlane, admin: Client, name: str, *, objects: int, workers: int, number: int) -> Round:
    """Measures a peer once, in a namespace of its own that is empty afterwards.

    Raises:
        SystemExit: The peer ended, or was not done in time.
    """
    namespace = f"{name}-{number}"
    await plane.kubectl("create", "namespace", namespace)
    await _fill(admin, namespace, objects)
    peer = PEERS[name](namespace, workers)
    watched = Watched(plane.audit_log, name, plane.audit_log.stat().st_size)
    kubeconfig = plane.kubeconfig(name, groups=("system:masters",))
    process = ManagedProcess(name, peer.command, plane.logs / f"{name}.log", environment_of(peer, kubeconfig))
    process.start()
    try:
        found = await _follow(process, watched, objects)
    finally:
        process.kill()
    for path in (
        f"/api/v1/namespaces/{namespace}/configmaps",
        f"/apis/example.org/v1/namespaces/{namespace}/greetings",
    ):
        await plane.kubectl("delete", "--raw", path)
    return found


async def _follow(process: ManagedProcess, watched: Watched, objects: int) -> Round:
    statistics, began, cpu_s = OperatorProcess(process.pid), time.monotonic(), 0.0
    while len(watched.done) < objects:
        if not process.running or time.monotonic() - began > DEADLINE_S:
            raise SystemExit(f"{process.name}: {len(watched.done)} of {objects} done\n{process.tail()}")
        if not watched.first:
            cpu_s = statistics.cpu_s()
        await anyio.sleep(POLL_S)
        watched.read()
    await anyio.sleep(SETTLE_S)
    watched.read()
    return Round(
        objects_per_s=objects / watched.seconds,
        cpu_s=statistics.cpu_s() - cpu_s,
        rss_mib=statistics.rss() / MIB,
        writes=watched.counts[True],
        reads=watched.counts[False],
    )


async def _fill(admin: Client, namespace: str, objects: int) -> None:
    names = iter(range(objects))

    async def make() -> None:
        for number in names:
            meta = {"name": f"greeting-{number}", "namespace": namespace}
            body = {"apiVersion": GREETING.api_version, "kind": GREETING.kind, "metadata": meta}
            await admin.create(GREETING, {**body, "spec": {"greeting": f"hello {number}"}})

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(make)
