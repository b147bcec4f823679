"""`cp`: files out of a worker, or into one."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchctl.api.counts import counted
from torchctl.cli.torchrun.common import verb

if TYPE_CHECKING:
    from torchctl.client import Cluster


@verb
@click.argument("source")
@click.argument("target")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Where rank N runs. Default: on the first worker.")
@click.option("--node", type=click.IntRange(0), metavar="N", help="On worker N of the job.")
async def command(cluster: "Cluster", source: str, target: str, rank: int | None, node: int | None) -> None:
    """Copy SOURCE to TARGET, one of which is JOB:PATH, a path in a worker of JOB. Needs tar in the job's image.

    A local file or directory that exists already is not written over.
    """
    from torchctl.client import copying
    from torchctl.client.errors import UsageError
    from torchctl.client.jobs import get_job
    from torchctl.client.workers import find_worker
    from torchctl.runtime.kinds import Key

    here, there = copying.parse(source), copying.parse(target)
    if bool(here.job) == bool(there.job):
        raise UsageError("exactly one of source and target is in a job", "Write that one as JOB:PATH.")
    job = await get_job(cluster, Key(cluster.namespace, here.job or there.job))
    worker = await find_worker(job, rank=rank, node=node)
    if here.job:
        copied = await copying.download(job, worker, here.path, Path(there.path))
    else:
        copied = await copying.upload(job, worker, Path(here.path), there.path)
    click.echo(f"{copied.path}: {counted(copied.files, 'file')}, {counted(copied.bytes, 'byte')}", err=True)
