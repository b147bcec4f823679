"""Follows a job to its end: the lines of its workers on standard output, what it waits for on standard error."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["follow"]


async def follow(job: "Job") -> None:
    """Shows what a job does until it ends.

    Raises:
        JobFailed: It failed.
    """
    import anyio

    from torchctl.cli.torchrun.logs import show
    from torchctl.client.logs.roster import Wanted

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_phases, job)
        await show(job, Wanted(follow=True))
        tasks.cancel_scope.cancel()


async def _phases(job: "Job") -> None:
    """Tells each phase of a job, once."""
    told = ""
    async with job.watch() as changes:
        async for seen in changes:
            if seen is not None and seen.status.phase not in ("", told):
                told = seen.status.phase
                click.echo(f"{job.name} is {told}", err=True)
