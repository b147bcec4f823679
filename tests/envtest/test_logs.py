"""Logs of a job's workers through a real API server: merged, followed over restarts, cut, explained."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from jobs import a_job
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.labels import ATTEMPT, job_labels
from torchctl.client.blocking import BlockingClient
from torchctl.client.cluster import Cluster, Target
from torchctl.client.errors import UsageError
from torchctl.client.jobs import Job, get_job
from torchctl.client.logs.reading import JobLine, read_logs
from torchctl.client.logs.roster import Wanted
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Key
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.logfiles import LogFile
from torchctl.testing.nodekinds import POD
from torchctl.testing.script import inside

NS = 10**9
INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class Training:
    """A job whose pods and status the test makes: what is tested here reads them only."""

    admin: Client
    kubelet: ScriptedKubelet
    job: Job
    time: int = 0

    async def worker(self, index: int, *, attempt: int = 0, ranks: int = 1, nodes: int = 2) -> LogFile:
        """Starts a worker and returns its log."""
        name = f"{self.job.name}{f'-r{attempt}' if attempt else ''}-{index}"
        values = {"PET_NNODES": nodes, "PET_NPROC_PER_NODE": ranks, "PET_RDZV_BACKEND": "static"}
        env = [{"name": key, "value": str(value)} for key, value in values.items()]
        labels = job_labels(self.job.name, self.job.uid, "queue", "worker") | {ATTEMPT: str(attempt)}
        await self.admin.create(
            POD,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": self.job.namespace,
                    "labels": labels,
                    "annotations": {INDEX: str(index)},
                },
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "trainer", "image": "trainer:1", "env": env}],
                },
            },
        )
        return self.kubelet.logs[Key(self.job.namespace, name)]

    async def end(self, index: int, log: LogFile, *, attempt: int = 0) -> None:
        """Lets the trainer of a worker end."""
        name = f"{self.job.name}{f'-r{attempt}' if attempt else ''}-{index}"
        await running(self.admin, Key(self.job.namespace, name))
        log.end()
        self.kubelet.end(self.job.namespace, name)

    async def status(self, **status: Any) -> None:
        body = {"status": status}
        await self.admin.merge_patch(
            TORCHRUN_JOB, self.job.name, body, namespace=self.job.namespace, subresource="status"
        )

    def write(self, log: LogFile, text: str) -> None:
        """Writes a line, later than all lines before."""
        self.time += 1
        log.write(f"{text}\n", self.time * NS // 10)


async def running(admin: Client, key: Key) -> None:
    async def runs() -> bool:
        return (await admin.get(POD, key.name, key.namespace)).status.phase == "Running"

    await until(runs)


@pytest.fixture
async def training(
    control_plane: ControlPlane,
    operator_account: Connection,
    admin: Client,
    kubelet: ScriptedKubelet,
    own_script: None,
    namespace: str,
) -> Training:
    kubelet.script = kubelet.script.when(inside(namespace), Play(run_s=None))
    await admin.create(TORCHRUN_JOB, a_job(namespace, "vit"))
    cluster = Cluster(admin, control_plane.connection(), namespace, "the administrator")
    job = await get_job(cluster, Key(namespace, "vit"))
    training = Training(admin, kubelet, job)
    await training.status(phase="Running", attempt=0, nodes={"desired": 2})
    return training


async def each(batches: AsyncIterator[list[JobLine]]) -> AsyncIterator[str]:
    async for lines in batches:
        for line in lines:
            yield f"{line.label}: {line.text}"


async def test_a_follower_sees_every_line_of_every_attempt_once(training: Training) -> None:
    """Connections are cut meanwhile; the lines of each worker come in their order."""
    random, expected, seen = Random(1), list[str](), list[str]()
    logs = [await training.worker(index) for index in range(2)]
    async with read_logs(await training.job.refresh(), Wanted(follow=True)) as batches:
        for attempt in range(2):
            for number in range(100):
                index = random.randrange(2)
                training.write(logs[index], f"{attempt} {number}")
                expected.append(f"rank {index}: {attempt} {number}")
                if number % 20 == 0:
                    logs[index].cut_after.append(random.randrange(200))
            for index, log in enumerate(logs):
                await training.end(index, log, attempt=attempt)
            if attempt == 0:
                await training.status(phase="Restarting", attempt=1)
                logs = [await training.worker(index, attempt=1) for index in range(2)]
        await training.status(phase="Succeeded")
        seen = [line async for line in each(batches)]
    assert sorted(seen) == sorted(expected)
    for worker in ("rank 0: 0", "rank 1: 0", "rank 0: 1", "rank 1: 1"):
        own = [line for line in expected if line.startswith(worker)]
        assert [line for line in seen if line.startswith(worker)] == own


async def test_a_pod_that_is_deleted_ends_its_log(training: Training) -> None:
    log = await training.worker(0)
    training.write(log, "one")
    await training.status(phase="Running")
    async with read_logs(training.job, Wanted(follow=True)) as batches:
        lines = each(batches)
        assert await anext(lines) == "rank 0: one"
        await training.admin.delete(POD, "vit-0", namespace=training.job.namespace, grace_seconds=0)
        log.end()
        await training.status(phase="Succeeded")
        with anyio.fail_after(30):
            assert [line async for line in lines] == []


async def test_logs_that_are_read_come_in_the_order_of_time(training: Training) -> None:
    logs = [await training.worker(index, ranks=2) for index in range(2)]
    for number in range(20):
        training.write(logs[number % 2], f"[default{number % 4 // 2}]: {number}")
    for index, log in enumerate(logs):
        await training.end(index, log)
    async with read_logs(training.job, Wanted()) as batches:
        seen = [line async for line in each(batches)]
    assert seen == [
        f"rank {number % 2 * 2 + number % 4 // 2}: [default{number % 4 // 2}]: {number}" for number in range(20)
    ]
    async with read_logs(training.job, Wanted(rank=3, tail=4)) as batches:
        assert [line async for line in each(batches)] == ["rank 3: [default1]: 15", "rank 3: [default1]: 19"]
    with pytest.raises(UsageError, match="4 ranks"):
        async with read_logs(training.job, Wanted(rank=4)) as batches:
            await anext(batches)


async def torchrun(control_plane: ControlPlane, *arguments: str) -> tuple[int, str, str]:
    """Runs the plugin as a program of its own."""
    plugin = str(Path(sys.executable).with_name("kubectl-torchrun"))
    command = [plugin, *arguments, "--kubeconfig", str(control_plane.admin_kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def test_the_command_shows_the_failed_rank_first(control_plane: ControlPlane, training: Training) -> None:
    log = await training.worker(1)
    for line in ("epoch 1", "epoch 2", "ValueError: boom"):
        training.write(log, line)
    await training.end(1, log)
    failure = {
        "pod": "vit-1",
        "node": "gpu-7",
        "rank": 1,
        "exitCode": 42,
        "reason": "Error",
        "message": "ValueError: boom",
    }
    await training.status(phase="Failed", attempt=0, failure=failure)
    where = ("vit", "-n", training.job.namespace)
    assert await torchrun(control_plane, "logs", *where, "--failed", "--tail=2") == (
        0,
        "vit is Failed: rank 1 (pod vit-1) on node gpu-7 failed first with exit code 42: Error\n"
        "  ValueError: boom\n"
        "The last lines of pod vit-1:\n"
        "[rank 1] epoch 2\n"
        "[rank 1] ValueError: boom\n",
        "",
    )
    status, output, errors = await torchrun(control_plane, "logs", *where, "--follow")
    assert (status, output) == (1, "[rank 1] epoch 1\n[rank 1] epoch 2\n[rank 1] ValueError: boom\n")
    assert "has failed: rank 1 in pod vit-1 ended with exit code 42" in errors
    status, _, errors = await torchrun(control_plane, "logs", *where, "--rank=9")
    assert (status, errors) == (2, "Error: there is no rank 9: the job has 2 ranks. They count from 0.\n")


async def test_a_notebook_reads_line_by_line(control_plane: ControlPlane, training: Training) -> None:
    log = await training.worker(0)
    for number in range(3):
        training.write(log, str(number))
    await training.end(0, log)
    target = Target(kubeconfig=str(control_plane.admin_kubeconfig), namespace=training.job.namespace)

    def read() -> list[str]:
        with BlockingClient(target) as client:
            return [f"{line.label}: {line.text}" for line in client.job("vit").logs(tail=2)]

    assert await anyio.to_thread.run_sync(read) == ["rank 0: 1", "rank 0: 2"]
