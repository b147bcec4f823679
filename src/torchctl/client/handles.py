"""A job with all that can be done with it. `Job` has less: what its parts here need."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Self

from torchctl.client import changes, commands, copying
from torchctl.client.changes import Kept
from torchctl.client.code import read_code
from torchctl.client.commands import Done
from torchctl.client.copying import Copied
from torchctl.client.delivery import Silent
from torchctl.client.jobs import Job
from torchctl.client.logs.reading import JobLine, read_logs
from torchctl.client.logs.roster import Wanted
from torchctl.client.rollback import rollback
from torchctl.client.sync import Synced, sync
from torchctl.client.workers import find_worker

__all__ = ["JobHandle"]


class JobHandle(Job):
    """A job that a program follows and changes."""

    @classmethod
    def of(cls, job: Job) -> Self:
        """Returns the handle of a job that was read."""
        return cls(job.cluster, job.object)

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
    ) -> AsyncGenerator[AsyncIterator[JobLine]]:
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
        wanted = Wanted(follow=follow, rank=rank, node=node, attempt=attempt, since=since, tail=tail)
        async with read_logs(self, wanted) as batches, aclosing(_each(batches)) as lines:
            yield lines

    async def sync(self, directory: str | Path = ".", *, restart: bool = True, timeout_s: float = 120.0) -> Synced:
        """Sends a directory to the job: its first code, or new code if it runs with hot reload.

        RBAC: as `torchctl.client.sync.sync`.

        Args:
            restart: Start the program again with it. If not, its files change under the program that runs.

        Raises:
            UsageError: The job takes no new code.
            RequestRefused: Somebody else has sent other code meanwhile, and the job has that.
            TimedOut: Some workers have not taken it in time; they may do so later.
        """
        code = await read_code(self.cluster, self.namespace, Path(directory))
        return await sync(self, code, Silent(), restart=restart, patience_s=timeout_s)

    async def rollback(self, *, to: str = "", restart: bool = True, timeout_s: float = 120.0) -> Synced:
        """Takes the job, which runs with hot reload, back to code that it had before, whoever sent that.

        RBAC: as `torchctl.client.sync.sync`.

        Args:
            to: The revision, or its beginning; empty for the one before.
            restart: As for `sync`.

        Raises:
            UsageError: There is none.
            RequestRefused: The job does not have all its files any more.
            TimedOut: Some workers have not taken it in time; they may do so later.
        """
        return await rollback(self, Silent(), to=to, restart=restart, patience_s=timeout_s)

    async def run(
        self,
        argv: Sequence[str],
        *,
        rank: int | None = None,
        node: int | None = None,
        stdin: bytes | None = None,
        timeout_s: float | None = None,
    ) -> Done:
        """Runs a command in a worker and returns its exit code and what it wrote.

        Args, errors and RBAC: as `torchctl.client.commands.run`.
        """
        return await commands.run(self, argv, rank=rank, node=node, stdin=stdin, timeout_s=timeout_s)

    async def download(
        self, source: str, target: str | Path = ".", *, rank: int | None = None, node: int | None = None
    ) -> Copied:
        """Copies a file or directory out of a worker, such as a checkpoint. RBAC: list on pods, as `copying.download`.

        Args:
            source: The path in the worker.
            target: The new name here; an existing directory takes it under its own name.
            rank: The worker on which this rank runs; without it and `node`, the first worker.
            node: The worker with this index.

        Raises:
            UsageError: The target exists already, or cannot be written.
            NotFound: The worker does not run.
            RequestRefused: The worker cannot read the path, has no tar, or sends what must not be unpacked.
        """
        worker = await find_worker(self, rank=rank, node=node)
        return await copying.download(self, worker, source, Path(target))

    async def upload(
        self, source: str | Path, target: str, *, rank: int | None = None, node: int | None = None
    ) -> Copied:
        """Copies a file or directory of this machine into a worker; what is there under that name is written over.

        RBAC: list on pods, as `copying.upload`.

        Args:
            source: The path here.
            target: The new name in the worker; with a slash at its end, the directory that takes it.
            rank: The worker on which this rank runs; without it and `node`, the first worker.
            node: The worker with this index.

        Raises:
            UsageError: The source cannot be read.
            NotFound: The worker does not run.
            RequestRefused: The worker cannot write there, or has no tar.
        """
        worker = await find_worker(self, rank=rank, node=node)
        return await copying.upload(self, worker, Path(source), target)

    async def suspend(self) -> bool:
        """Stops the job's pods; workspace and checkpoints stay. Returns False if it was suspended. RBAC: get, patch."""
        return await changes.suspend(self)

    async def resume(self) -> bool:
        """Starts the next attempt of a suspended job. Returns False if it was not suspended. RBAC: get, patch."""
        return await changes.resume(self)

    async def scale(self, nodes: int) -> bool:
        """Sets how many nodes an elastic job should have. Returns False if it had that many. RBAC: get, patch."""
        return await changes.scale(self, nodes)

    async def restart(self) -> None:
        """Ends the job's attempt and begins the next one, with new pods. RBAC: get, list, watch, patch."""
        await changes.restart(self)

    async def delete(self, *, checkpoints: bool = False) -> Kept | None:
        """Deletes the job, and with `checkpoints` its checkpoints; returns what stays. RBAC: delete."""
        return await changes.delete(self, checkpoints=checkpoints)


async def _each(batches: AsyncIterator[list[JobLine]]) -> AsyncGenerator[JobLine]:
    async for lines in batches:
        for line in lines:
            yield line
