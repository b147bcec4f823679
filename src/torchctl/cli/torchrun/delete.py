"""`delete`: deletes jobs, and says what stays."""

from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.chosen import chosen, each, jobs_argument, selector_option, wait_options
from torchctl.cli.torchrun.common import verb

if TYPE_CHECKING:
    from torchctl.client import Cluster
    from torchctl.client.jobs import Job
    from torchctl.runtime.kinds import Key


@verb
@jobs_argument
@selector_option
@click.option("--all", "everything", is_flag=True, help="All jobs of the namespace.")
@click.option(
    "--checkpoints", is_flag=True, help="Delete also the claims with the jobs' checkpoints, of a job that is gone too."
)
@wait_options("the jobs are gone")
async def command(
    cluster: "Cluster",
    names: tuple[str, ...],
    selector: str,
    everything: bool,
    checkpoints: bool,
    wait: bool,
    timeout_s: float,
) -> None:
    """Delete jobs with their pods and workspaces. Checkpoints stay unless --checkpoints is given."""
    from torchctl.client.changes import delete, delete_left

    async def left(key: "Key") -> bool:
        """A job that is gone may have left its checkpoints."""
        claim = await delete_left(cluster, key) if checkpoints else None
        if claim:
            click.echo(f"PersistentVolumeClaim {claim} deleted; the job was gone")
        return claim is not None

    async def change(job: "Job") -> None:
        kept = await delete(job, checkpoints=checkpoints)
        if wait:
            await job.wait("deleted", timeout_s=timeout_s)
        click.echo(f"{job.name} deleted")
        if kept is not None:
            click.echo(f"PersistentVolumeClaim {kept.claim} stays: {kept.why}", err=True)

    jobs = await chosen(cluster, names, selector, everything, gone=left)
    if jobs or not names:
        await each(jobs, change)
