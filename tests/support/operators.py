"""The operator under test: in this process under its own service account, or as a process of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process, TaskGroup

from torchctl.cli.run import Operator, operator
from torchctl.controllers.settings import OperatorSettings, Restarting
from torchctl.runtime.client.config import Connection
from torchctl.runtime.manager import Manager
from torchctl.runtime.settings import ElectionSettings, RuntimeSettings, ServerSettings

__all__ = [
    "IMAGE",
    "QUICK",
    "RunningOperator",
    "background_operator",
    "operator_process",
    "operator_settings",
    "running_operator",
]

IMAGE = "registry.test/torchctl:test"
QUICK = Restarting(settle_s=1.0, backoff_s=1.0, max_backoff_s=2.0, stuck_pod_s=2.0, below_minimum_s=3.0)
"""Restarts for those who cannot wait."""


def operator_settings(namespace: str = "") -> Operator:
    """Settings for tests: no election, no ports, one namespace only."""
    return Operator(
        operator=OperatorSettings(image=IMAGE, restarting=QUICK, queue_status_period_s=0.1, kueue_place_period_s=0.1),
        runtime=RuntimeSettings(
            namespace=namespace,
            election=ElectionSettings(enabled=False),
            server=ServerSettings(metrics_port=None, health_port=None),
            shutdown_grace_s=5.0,
        ),
    )


@dataclass
class RunningOperator:
    """An operator at work in this process."""

    manager: Manager
    tasks: TaskGroup

    def kill(self) -> None:
        """Ends it on the spot: what it was doing is not finished, and what it knew is lost."""
        self.tasks.cancel_scope.cancel()


@asynccontextmanager
async def running_operator(
    connection: Connection, namespace: str = "", settings: Operator | None = None
) -> AsyncIterator[RunningOperator]:
    """Runs an operator beside the body and stops it gracefully, unless it was killed."""
    async with operator(connection, settings or operator_settings(namespace)) as manager:
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run, stop)
            yield RunningOperator(manager, tasks)
            stop.set()


@asynccontextmanager
async def background_operator(connection: Connection, namespace: str = "") -> AsyncIterator[None]:
    """`running_operator` in a task of its own, so that fixtures may start it in one task and stop it in another."""
    stop = asyncio.Event()

    async def run() -> None:
        async with running_operator(connection, namespace):
            await stop.wait()

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        stop.set()
        await task


@asynccontextmanager
async def operator_process(kubeconfig: Path, log: Path, *arguments: str) -> AsyncIterator[Process]:
    """`torchctl run` as a process of its own; SIGTERM at the end unless it is gone by then."""
    command = [sys.executable, "-m", "torchctl", "run", "--kubeconfig", str(kubeconfig), "--image", IMAGE]
    command += ["--metrics-port", "0", "--health-port", "0", "--bind-address", "127.0.0.1", *arguments]
    with log.open("ab") as output:
        process = await anyio.open_process(command, stdout=output, stderr=output)
        try:
            yield process
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.terminate()
                await process.wait()
