"""Jobs of a cluster: a handle of one, and lists of many."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torchctl.api.jobstatus import JobStatus
from torchctl.client.cluster import Cluster
from torchctl.client.errors import NotFound, TimedOut
from torchctl.client.namespaces import check_namespace
from torchctl.client.views import JOB, JobView
from torchctl.client.wait import FINISHED, Goal, Progress, conclude, job_text, judge
from torchctl.runtime.kinds import Key

if TYPE_CHECKING:
    from torchctl.client.changes import Kept
    from torchctl.client.logs.reading import JobLine
    from torchctl.client.sync import Synced

__all__ = ["Job", "get_job", "get_job_raw", "job_text", "list_jobs", "list_jobs_raw"]


class Job:
    """A TorchrunJob as it was last read, and what can be done with it.

    `status`, `phase` and `spec` are of the last read: `refresh` and `wait` bring newer ones.
    """

    def __init__(self, cluster: Cluster, seen: JobView) -> None:
        self.cluster = cluster
        self._seen = seen

    def __repr__(self) -> str:
        return f"<Job {self.key} {self.phase or 'new'}>"

    @property
    def name(self) -> str:
        return self._seen.metadata.name

    @property
    def namespace(self) -> str:
        return self._seen.metadata.namespace

    @property
    def uid(self) -> str:
        return self._seen.metadata.uid

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def object(self) -> JobView:
        """The job with the fields that are shown."""
        return self._seen

    @property
    def status(self) -> JobStatus:
        return self._seen.status

    @property
    def phase(self) -> str:
        return self._seen.status.phase

    async def refresh(self) -> Self:
        """Reads the job again. RBAC: get.

        Raises:
            NotFound: It does not exist any more.
        """
        self._seen = (await get_job(self.cluster, self.key))._seen
        return self

    async def wait(self, until: str | Goal = FINISHED, *, timeout_s: float | None = None) -> Self:
        """Waits until the job is as asked. RBAC: list and watch.

        Args:
            until: A phase, `finished`, `deleted`, or `condition=TYPE[=STATUS]`.
            timeout_s: Seconds; None waits for as long as it takes.

        Raises:
            JobFailed: The job ended in another way. Also if it failed and `finished` was waited for.
            NotFound: The job was deleted meanwhile.
            TimedOut: It took longer. The job goes on.
        """
        goal = until if isinstance(until, Goal) else Goal.parse(until)
        try:
            async with asyncio.timeout(timeout_s):
                await self._reach(goal)
        except TimeoutError:
            raise TimedOut(
                f"{job_text(self.key)} is {self.phase or 'new'} and not yet {goal} after {timeout_s:g} s",
                f"It goes on; see `torchctl status {self.name} -n {self.namespace}`.",
            ) from None
        return self

    @asynccontextmanager
    async def watch(self) -> AsyncGenerator[AsyncGenerator[JobView | None]]:
        """Yields the job as it changes; None once it is gone. RBAC: list and watch."""
        from torchctl.client.states import states  # costs a command that only lists jobs more than the list

        async with states(self.cluster, JOB, namespace=self.namespace, name=self.name) as found:

            async def changes() -> AsyncGenerator[JobView | None]:
                async for objects in found:
                    seen = objects.get(self.key)
                    # A job of the same name that came later is another job.
                    yield seen if seen is not None and seen.metadata.uid == self.uid else None

            async with aclosing(changes()) as changing:
                yield changing

    @asynccontextmanager
    async def logs(
        self,
        *,
        follow: bool = False,
        rank: int | None = None,
        node: int | None = None,
        attempt: int | None = None,
        since: datetime | None = None,
        tail: int | None = None,
    ) -> AsyncGenerator[AsyncIterator["JobLine"]]:
        """Yields what the workers print. RBAC: list and watch on pods, get on pods/log.

            async with job.logs(follow=True) as lines:
                async for line in lines:
                    print(line.label, line.text)

        Args:
            follow: Also what will be written, over restarts, until the job ends.
            rank: Only the worker on which this rank runs.
            node: Only the worker with this index.
            attempt: Only this attempt; None for the current one and, if followed, those after it.
            since: Only from this time on.
            tail: Only so many last lines of each worker.

        Raises:
            UsageError: There is no such rank, or its pod is not known.
        """
        from torchctl.client.logs.reading import read_logs
        from torchctl.client.logs.roster import Wanted

        wanted = Wanted(follow=follow, rank=rank, node=node, attempt=attempt, since=since, tail=tail)
        async with read_logs(self, wanted) as batches, aclosing(_each(batches)) as lines:
            yield lines

    async def sync(self, directory: str | Path = ".", *, timeout_s: float = 120.0) -> "Synced":
        """Sends a directory to the job: its first code, or new code if it runs with hot reload.

        RBAC: as `torchctl.client.sync.sync`.

        Raises:
            UsageError: The job takes no new code.
            TimedOut: Some workers have not taken it in time; they may do so later.
        """
        from torchctl.client.code import read_code
        from torchctl.client.delivery import Silent
        from torchctl.client.sync import sync

        code = await read_code(self.cluster, self.namespace, Path(directory))
        return await sync(self, code, Silent(), patience_s=timeout_s)

    async def suspend(self) -> bool:
        """Stops the job's pods; workspace and checkpoints stay. Returns False if it was suspended. RBAC: get, patch."""
        from torchctl.client.changes import suspend

        return await suspend(self)

    async def resume(self) -> bool:
        """Starts the next attempt of a suspended job. Returns False if it was not suspended. RBAC: get, patch."""
        from torchctl.client.changes import resume

        return await resume(self)

    async def scale(self, nodes: int) -> bool:
        """Sets how many nodes an elastic job should have. Returns False if it had that many. RBAC: get, patch."""
        from torchctl.client.changes import scale

        return await scale(self, nodes)

    async def restart(self) -> None:
        """Ends the job's attempt and begins the next one, with new pods. RBAC: get, list, watch, patch."""
        from torchctl.client.changes import restart

        await restart(self)

    async def delete(self, *, checkpoints: bool = False) -> "Kept | None":
        """Deletes the job, and with `checkpoints` its checkpoints; returns what stays. RBAC: delete."""
        from torchctl.client.changes import delete

        return await delete(self, checkpoints=checkpoints)

    async def _reach(self, goal: Goal) -> None:
        async with self.watch() as changes:
            async for seen in changes:
                self._seen = seen or self._seen
                if judge(goal, seen) is not Progress.WAITING:
                    return conclude(goal, self.key, seen)
        raise AssertionError("a watch does not end by itself")


async def _each(batches: "AsyncIterator[list[JobLine]]") -> "AsyncGenerator[JobLine]":
    async for lines in batches:
        for line in lines:
            yield line


async def get_job(cluster: Cluster, key: Key) -> Job:
    """Reads a job. RBAC: get.

    Raises:
        NotFound: There is none.
    """
    try:
        with cluster.explained(job_text(key)):
            return Job(cluster, await cluster.client.get(JOB, key.name, key.namespace))
    except NotFound:
        await check_namespace(cluster, key.namespace)
        raise


async def get_job_raw(cluster: Cluster, key: Key) -> dict[str, Any]:
    """Reads a job with all its fields. RBAC: get. Raises as `get_job` does."""
    try:
        with cluster.explained(job_text(key)):
            return await cluster.client.get_raw(JOB, key.name, key.namespace)
    except NotFound:
        await check_namespace(cluster, key.namespace)
        raise


async def list_jobs(cluster: Cluster, *, namespace: str = "", labels: str = "") -> list[Job]:
    """Reads the jobs of a namespace, empty for all. RBAC: list."""
    with cluster.explained(_scope(namespace)):
        found = await cluster.client.list(JOB, namespace=namespace, labels=labels)
    if not found:
        await check_namespace(cluster, namespace)
    return [Job(cluster, seen) for seen in found]


async def list_jobs_raw(cluster: Cluster, *, namespace: str = "", labels: str = "") -> list[dict[str, Any]]:
    """Reads the jobs of a namespace, empty for all, with all their fields. RBAC: list."""
    with cluster.explained(_scope(namespace)):
        found = await cluster.client.list_raw(JOB, namespace=namespace, labels=labels)
    if not found:
        await check_namespace(cluster, namespace)
    return [*found]


def _scope(namespace: str) -> str:
    return f"TorchrunJobs in namespace {namespace}" if namespace else "TorchrunJobs in all namespaces"
