"""Replicas of the real program that elect a leader among themselves, and who kills the one that leads."""

import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from clusters import OPERATOR_NAMESPACE
from operators import operator_process

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError
from torchctl.runtime.kinds import LEASE

__all__ = ["QUICK_REPLICA", "Replicas", "replicas"]

LEASE_NAME = "torchctl"
QUICK_REPLICA = (
    *("--lease-namespace", OPERATOR_NAMESPACE, "--lease-name", LEASE_NAME, "--log-format", "json"),
    *("--lease-duration", "4", "--renew-deadline", "2", "--retry-period", "0.4", "--connect-timeout", "1.5"),
    *("--incident-settle", "1", "--restart-backoff", "1", "--restart-backoff-max", "2"),
    *("--stuck-pod-timeout", "2", "--below-minimum-timeout", "3", "--queue-status-period", "0.2"),
    "--coordinator",
)
"""Options of a replica that hands over soon, restarts jobs soon, and lets jobs in that no gang scheduler places."""


@dataclass(eq=False)
class Replicas:
    """So many processes at any time: for each one that ends, another one starts.

    Attributes:
        ends: Exit codes of those that ended otherwise.
    """

    admin: Client
    kubeconfig: Path
    logs: Path
    ends: list[int] = field(default_factory=list)
    _running: dict[Path, Process] = field(default_factory=dict)
    _killed: set[Path] = field(default_factory=set)
    _stopping: bool = False

    async def keep_one(self) -> None:
        """Works until cancelled."""
        while True:
            log = self.logs / f"replica-{len([*self.logs.glob('replica-*.log')])}.log"
            async with operator_process(self.kubeconfig, log, *QUICK_REPLICA) as process:
                self._running[log] = process
                code = await process.wait()
            del self._running[log]
            if log not in self._killed:
                self.ends.append(code)

    async def holder(self) -> str:
        """Who holds the Lease, empty where nobody does or it cannot be told."""
        with suppress(ApiError):
            return (await self.admin.get(LEASE, LEASE_NAME, OPERATOR_NAMESPACE)).spec.holder_identity or ""
        return ""

    async def leads(self) -> bool:
        """Whether one of those that run leads."""
        return await self._leader() is not None

    async def kill_leader(self) -> bool:
        """SIGKILL for the process that leads; False where none of those that run does."""
        log = await self._leader()
        if log is None:
            return False
        self._killed.add(log)
        self._running[log].send_signal(signal.SIGKILL)
        return True

    async def _leader(self) -> Path | None:
        holder = await self.holder()
        alive = set(self._running) - self._killed
        return next((log for log in alive if any(_began(line, holder) for line in _lines(log))), None)

    @property
    def kills(self) -> int:
        """How many leaders were killed."""
        return len(self._killed)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What all of them logged; a line that its writer could not end is left out."""
        for log in sorted(self.logs.glob("replica-*.log")):
            yield from _lines(log)


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    for line in log.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def _began(line: dict[str, Any], identity: str) -> bool:
    """Whether a line says that this process began to lead: the others also name who does."""
    return line.get("msg") == "became leader" and line.get("identity") == identity


@asynccontextmanager
async def replicas(admin: Client, kubeconfig: Path, logs: Path, count: int = 2) -> AsyncIterator[Replicas]:
    """Keeps `count` replicas beside the body, and stops them in the end."""
    group = Replicas(admin, kubeconfig, logs)
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(group.keep_one)
            await anyio.lowlevel.checkpoint()  # each takes the next log's name
        yield group
        tasks.cancel_scope.cancel()
