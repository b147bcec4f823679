"""Leader election among real processes on a real API server, as its audit log saw it."""

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.kinds import LEASE
from torchctl.testing.audit import AuditedRequest, read_audit_log
from torchctl.testing.controlplane import ControlPlane

PROGRAM = Path(__file__).parent / "programs" / "leader.py"
LEASE_S = 3
RETRY = 2 / 15
"""How much of a lease passes between two looks at it."""
START_S = 60.0
"""For a Python process to start on a busy machine; no promise is measured by it."""
SOON_S = 30.0
"""For what is waited for and not measured."""


class Replicas:
    """Processes that elect a leader among themselves in one namespace."""

    def __init__(self, cluster: ControlPlane, admin: Client, namespace: str, logs: Path) -> None:
        self.cluster, self.admin, self.namespace, self.logs = cluster, admin, namespace, logs
        self.lease_s = LEASE_S
        self.processes: dict[str, Process] = {}
        self._since = cluster.audit_log.stat().st_size

    async def start(self, name: str) -> str:
        """Starts a replica and returns its identity once it watches the Lease."""
        identity = f"{name}.{self.namespace}"
        command = [sys.executable, str(PROGRAM), str(self.cluster.admin_kubeconfig), self.namespace]
        with (self.logs / f"{name}.log").open("wb") as log:
            self.processes[identity] = await anyio.open_process(
                [*command, identity, str(self.lease_s)], stdin=None, stdout=log, stderr=log
            )
        await until(self.watches(identity), within_s=START_S)
        return identity

    def watches(self, identity: str) -> Callable[[], Awaitable[bool]]:
        async def watches() -> bool:
            with self.cluster.audit_log.open("rb") as log:
                log.seek(self._since)
                return any(identity.encode() in line and b'"stage":"ResponseStarted"' in line for line in log)

        return watches

    def leads(self, identity: str) -> Callable[[], Awaitable[bool]]:
        async def leads() -> bool:
            return await self.holder() == identity

        return leads

    def writes(self, identity: str) -> Callable[[], Awaitable[bool]]:
        count = len(self.writes_by(identity))

        async def writes() -> bool:
            return len(self.writes_by(identity)) > count

        return writes

    async def holder(self) -> str:
        try:
            return (await self.admin.get(LEASE, "replicas", self.namespace)).spec.holder_identity or ""
        except NotFound:
            return ""

    def signal(self, identity: str, number: signal.Signals) -> None:
        self.processes[identity].send_signal(number)

    async def wait(self, identity: str) -> int:
        with anyio.fail_after(60):
            return await self.processes.pop(identity).wait()

    def requests(self) -> list[AuditedRequest]:
        """Of this test: to read what all others asked for can take longer than a lease."""
        found = read_audit_log(self.cluster.audit_log, self._since)
        return [request for request in found if self.namespace in request.request_uri]

    def writes_by(self, identity: str) -> list[AuditedRequest]:
        """What it wrote, or tried to, besides the Lease."""
        return [
            request
            for request in self.requests()
            if request.user_agent == identity and request.is_write and "/configmaps" in request.request_uri
        ]

    def claimed_at(self, identity: str) -> datetime:
        """When the server received the write that gave it the Lease."""
        claims = (
            request
            for request in self.requests()
            if request.user_agent == identity and request.is_write and "/leases" in request.request_uri
        )
        return received(next(claim for claim in claims if claim.response_status.code < 300))

    async def kill(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):  # it ended by itself this very moment
                process.kill()
            await process.wait()


def received(request: AuditedRequest) -> datetime:
    return datetime.fromisoformat(request.request_received_timestamp)


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float) -> float:
    """Waits for a condition and returns how long it took."""
    began = anyio.current_time()
    with anyio.fail_after(within_s):
        while not await condition():  # noqa: ASYNC110  # another process brings it about
            await anyio.sleep(0.01)
    return anyio.current_time() - began


@asynccontextmanager
async def running(replicas: Replicas) -> AsyncIterator[tuple[str, str]]:
    """The identities of a leader that writes and of one that stands by."""
    try:
        leader = await replicas.start("first")
        await until(replicas.writes(leader), within_s=START_S)
        yield leader, await replicas.start("second")
    finally:
        with anyio.CancelScope(shield=True):
            await replicas.kill()


@pytest.fixture
def replicas(control_plane: ControlPlane, admin: Client, namespace: str, tmp_path: Path) -> Replicas:
    return Replicas(control_plane, admin, namespace, tmp_path)


async def test_sigterm_hands_over_at_once(replicas: Replicas) -> None:
    """With a lease that is long, so that quick is told from late on a slow machine, too."""
    replicas.lease_s = 60
    async with running(replicas) as (leader, other):
        replicas.signal(leader, signal.SIGTERM)
        took_s = await until(replicas.leads(other), within_s=SOON_S)
        assert took_s < RETRY * replicas.lease_s / 2  # by the watch, then, and not by looking now and then
        assert await replicas.wait(leader) == 0
        await until(replicas.writes(other), within_s=SOON_S)
        last = max(received(write) for write in replicas.writes_by(leader))
        assert last < replicas.claimed_at(other)


async def test_sigkill_is_made_up_for_within_the_lease(replicas: Replicas) -> None:
    """A sixth of the lease is left for a slow machine."""
    replicas.lease_s = 30
    async with running(replicas) as (leader, other):
        replicas.signal(leader, signal.SIGKILL)
        took_s = await until(replicas.leads(other), within_s=2 * replicas.lease_s)
        assert took_s < replicas.lease_s * 7 / 6
        await replicas.wait(leader)
        await until(replicas.writes(other), within_s=SOON_S)


async def test_replica_paused_beyond_its_lease_writes_nothing(
    replicas: Replicas,
) -> None:
    """The replica is stopped by a signal, and writes again only when it leads again."""
    async with running(replicas) as (leader, other):
        replicas.signal(leader, signal.SIGSTOP)
        await until(replicas.leads(other), within_s=SOON_S)
        await until(replicas.writes(other), within_s=SOON_S)
        claimed_at = replicas.claimed_at(other)
        asked = len([request for request in replicas.requests() if request.user_agent == leader])

        replicas.signal(leader, signal.SIGCONT)

        async def asks_again() -> bool:
            return len([request for request in replicas.requests() if request.user_agent == leader]) > asked

        await until(asks_again, within_s=SOON_S)
        for _ in range(10):  # as long as the other leads and writes
            await until(replicas.writes(other), within_s=SOON_S)
        late = [write for write in replicas.writes_by(leader) if received(write) > claimed_at]
        assert [write for write in late if write.response_status.code < 300] == []
        # At most the one that had passed the fence when the process was stopped.
        assert len(late) <= 1

        replicas.signal(other, signal.SIGTERM)
        await until(replicas.leads(leader), within_s=SOON_S)
        await until(replicas.writes(leader), within_s=SOON_S)
