"""`restart`: ends the attempt of jobs and begins the next."""

from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.chosen import chosen, each, jobs_argument, selector_option, wait_options
from torchctl.cli.torchrun.common import verb

if TYPE_CHECKING:
    from torchctl.client import Cluster
    from torchctl.client.jobs import Job


@verb
@jobs_argument
@selector_option
@wait_options("the next attempts run")
async def command(cluster: "Cluster", names: tuple[str, ...], selector: str, wait: bool, timeout_s: float) -> None:
    """End the attempt of jobs and begin the next one, with new pods. It uses up none of a job's restarts."""
    from torchctl.client.changes import restart

    async def change(job: "Job") -> None:
        await restart(job, timeout_s=timeout_s)
        if wait:
            await job.wait("Running", timeout_s=timeout_s)
        click.echo(f"{job.name} restarted")

    await each(await chosen(cluster, names, selector), change)
