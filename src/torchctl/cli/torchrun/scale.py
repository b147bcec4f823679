"""`scale`: changes how many nodes elastic jobs should have."""

from typing import TYPE_CHECKING

import click

from torchctl.api.counts import counted
from torchctl.cli.torchrun.chosen import chosen, each, jobs_argument, selector_option, wait_options
from torchctl.cli.torchrun.common import verb

if TYPE_CHECKING:
    from torchctl.client import Cluster
    from torchctl.client.jobs import Job


@verb
@jobs_argument
@selector_option
@click.option("--nodes", type=click.IntRange(1), required=True, help="Nodes that each job should have.")
@wait_options("that many nodes are ready")
async def command(
    cluster: "Cluster", names: tuple[str, ...], selector: str, nodes: int, wait: bool, timeout_s: float
) -> None:
    """Change how many nodes elastic jobs should have, within their --elastic MIN:MAX."""
    from torchctl.client.changes import has_nodes, scale

    async def change(job: "Job") -> None:
        changed = await scale(job, nodes)
        if wait:
            await has_nodes(job, nodes, timeout_s=timeout_s)
        click.echo(f"{job.name} {'scaled to' if changed else 'has'} {counted(nodes, 'node')}")

    await each(await chosen(cluster, names, selector), change)
