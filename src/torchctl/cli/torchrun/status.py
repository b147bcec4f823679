"""`status`: all about one job, once or live."""

from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.common import verb
from torchctl.cli.torchrun.output import is_raw, output_option, print_objects
from torchctl.cli.torchrun.suggestions import job_names

if TYPE_CHECKING:
    from torchctl.client import Cluster


@verb
@click.argument("job", shell_complete=job_names)
@click.option("-w", "--watch", is_flag=True, help="Stay and show changes until the job ends.")
@output_option
async def command(cluster: "Cluster", job: str, watch: bool, output: str | None) -> None:
    """Show what JOB does, what it waits for, and its workers; with -w until it ends.

    With -w the exit status is 1 if the job fails. Ctrl-C leaves the job alone.
    """
    from torchctl.cli.torchrun.live import follow
    from torchctl.client.jobs import get_job, get_job_raw
    from torchctl.client.pods import pods_of
    from torchctl.client.summary import summarize
    from torchctl.runtime.kinds import Key

    key = Key(cluster.namespace, job)
    if is_raw(output):
        return print_objects([await get_job_raw(cluster, key)], output, one=True)
    found = await get_job(cluster, key)
    if watch:
        return await follow(found)
    from datetime import UTC, datetime

    pods = await pods_of(cluster, found.key)
    click.echo("\n".join(summarize(found.object, pods, datetime.now(UTC), every=output == "wide").lines()))
    return None
