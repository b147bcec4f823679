"""`resume`: starts suspended jobs again."""

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
@wait_options("the jobs run")
async def command(cluster: "Cluster", names: tuple[str, ...], selector: str, wait: bool, timeout_s: float) -> None:
    """Start suspended jobs again, each with its next attempt."""
    from torchctl.client.changes import resume

    async def change(job: "Job") -> None:
        changed = await resume(job)
        if wait:
            await job.wait("Running", timeout_s=timeout_s)
        click.echo(f"{job.name} {'resumed' if changed else 'was not suspended'}")

    await each(await chosen(cluster, names, selector), change)
