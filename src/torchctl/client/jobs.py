"""Jobs of a cluster: a handle of one, and lists of many."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Self

from torchctl.api.jobstatus import JobStatus
from torchctl.client.cluster import Cluster
from torchctl.client.errors import NotFound, TimedOut, UsageError
from torchctl.client.jobnames import job_name
from torchctl.client.namespaces import check_namespace
from torchctl.client.views import JOB, JobView
from torchctl.client.wait import FINISHED, Goal, Progress, conclude, job_text, judge
from torchctl.runtime.client import errors as api
from torchctl.runtime.kinds import Key

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
            timeout_s: Seconds; 0 looks once, None waits for as long as it takes.

        Raises:
            JobFailed: The job ended in another way. Also if it failed and `finished` was waited for.
            NotFound: The job was deleted meanwhile.
            TimedOut: It took longer. The job goes on.
        """
        goal = until if isinstance(until, Goal) else Goal.parse(until)
        try:
            async with asyncio.timeout(timeout_s or None):
                await self._reach(goal, once=timeout_s == 0)
        except TimeoutError:
            raise TimedOut(
                f"{job_text(self.key)} is {self.phase or 'new'} and not yet {goal} after {timeout_s:g} s",
                f"It goes on; see `kubectl torchrun status {self.name} -n {self.namespace}`.",
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

    async def _reach(self, goal: Goal, *, once: bool) -> None:
        """Waits for the goal. Raises TimeoutError if it is to look `once`, and the job is not there yet."""
        async with self.watch() as changes:
            async for seen in changes:
                self._seen = seen or self._seen
                if judge(goal, seen) is not Progress.WAITING:
                    return conclude(goal, self.key, seen)
                if once:
                    raise TimeoutError
        raise AssertionError("a watch does not end by itself")


async def get_job(cluster: Cluster, key: Key) -> Job:
    """Reads a job, which may be named as `trj/vit`. RBAC: get.

    Raises:
        UsageError: It is no name.
        NotFound: There is none.
    """
    key = Key(key.namespace, job_name(key.name))
    try:
        with cluster.explained(job_text(key)):
            return Job(cluster, await cluster.client.get(JOB, key.name, key.namespace))
    except NotFound:
        await check_namespace(cluster, key.namespace)
        raise


async def get_job_raw(cluster: Cluster, key: Key) -> dict[str, Any]:
    """Reads a job with all its fields. RBAC: get. Raises as `get_job` does."""
    key = Key(key.namespace, job_name(key.name))
    try:
        with cluster.explained(job_text(key)):
            return await cluster.client.get_raw(JOB, key.name, key.namespace)
    except NotFound:
        await check_namespace(cluster, key.namespace)
        raise


async def list_jobs(cluster: Cluster, *, namespace: str = "", labels: str = "") -> list[Job]:
    """Reads the jobs of a namespace, empty for all. RBAC: list."""
    with cluster.explained(_scope(namespace)), _selecting(labels):
        found = await cluster.client.list(JOB, namespace=namespace, labels=labels)
    if not found:
        await check_namespace(cluster, namespace)
    return [Job(cluster, seen) for seen in found]


async def list_jobs_raw(cluster: Cluster, *, namespace: str = "", labels: str = "") -> list[dict[str, Any]]:
    """Reads the jobs of a namespace, empty for all, with all their fields. RBAC: list."""
    with cluster.explained(_scope(namespace)), _selecting(labels):
        found = await cluster.client.list_raw(JOB, namespace=namespace, labels=labels)
    if not found:
        await check_namespace(cluster, namespace)
    return [*found]


@contextmanager
def _selecting(labels: str) -> Iterator[None]:
    """Turns the refusal of a selector into an error of whoever wrote it."""
    try:
        yield
    except api.BadRequest as error:
        if not labels:
            raise
        raise UsageError(
            f"{labels!r} chooses no labels: {error.message}", "Write team=a, team!=a or 'team in (a, b)'."
        ) from error


def _scope(namespace: str) -> str:
    return f"TorchrunJobs in namespace {namespace}" if namespace else "TorchrunJobs in all namespaces"
