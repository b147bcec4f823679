"""`status`: all about one job, once or live."""

from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.common import verb
from torchctl.cli.torchrun.output import is_raw, output_option, print_objects
from torchctl.cli.torchrun.suggestions import job_names

if TYPE_CHECKING:
    from torchctl.api.kube import Pod
    from torchctl.client import Cluster
    from torchctl.client.jobs import Job


@verb
@click.argument("job", shell_complete=job_names)
@click.option("-w", "--watch", is_flag=True, help="Stay and show changes until the job ends.")
@output_option
async def command(cluster: "Cluster", job: str, watch: bool, output: str | None) -> None:
    """Show what JOB does, what it waits for, and its workers; with -w until it ends.

    With -w the exit status is 1 if the job fails. Ctrl-C leaves the job alone.
    """
    from torchctl.cli.torchrun.live import follow
    from torchctl.client.errors import UsageError
    from torchctl.client.jobs import get_job, get_job_raw
    from torchctl.client.summary import summarize
    from torchctl.runtime.kinds import Key

    key = Key(cluster.namespace, job)
    if watch and output is not None:
        raise UsageError("-w and -o exclude each other", "Leave one out; `kubectl get trj -w -o json` takes both.")
    if is_raw(output):
        return print_objects([await get_job_raw(cluster, key)], output, one=True)
    found = await get_job(cluster, key)
    if watch:
        return await follow(found)
    from datetime import UTC, datetime

    pods = await _pods(found)
    click.echo("\n".join(summarize(found.object, pods, datetime.now(UTC), every=output == "wide").lines()))
    return None


async def _pods(job: "Job") -> "list[Pod]":
    """Reads the pods of a job. Who may see jobs and no pods sees the job, and is told."""
    from torchctl.client.errors import NotAllowed
    from torchctl.client.pods import pods_of

    try:
        return await pods_of(job.cluster, job.key)
    except NotAllowed as error:
        click.echo(f"Remark: {error}", err=True)
        return []
