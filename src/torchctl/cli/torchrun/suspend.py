"""`suspend`: stops the pods of jobs."""

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
@wait_options("the jobs are suspended")
async def command(cluster: "Cluster", names: tuple[str, ...], selector: str, wait: bool, timeout_s: float) -> None:
    """Stop the pods of jobs. Workspaces and checkpoints stay; `resume` starts the next attempt."""
    from torchctl.client.changes import suspend

    async def change(job: "Job") -> None:
        changed = await suspend(job)
        if wait:
            await job.wait("Suspended", timeout_s=timeout_s)
        click.echo(f"{job.name} {'suspended' if changed else 'was suspended already'}")

    await each(await chosen(cluster, names, selector), change)
