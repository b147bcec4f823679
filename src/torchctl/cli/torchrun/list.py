"""`list`: the jobs of a namespace."""

from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.common import verb
from torchctl.cli.torchrun.output import all_namespaces_option, is_raw, output_option, print_objects, print_table

if TYPE_CHECKING:
    from torchctl.client import Cluster


@verb
@all_namespaces_option
@click.option("-l", "--selector", default="", metavar="LABELS", help="Only jobs with these labels.")
@output_option
async def command(cluster: "Cluster", all_namespaces: bool, selector: str, output: str | None) -> None:
    """List jobs."""
    from datetime import UTC, datetime

    from torchctl.client.jobs import list_jobs, list_jobs_raw
    from torchctl.client.tables import jobs_table

    namespace = "" if all_namespaces else cluster.namespace
    if is_raw(output):
        return print_objects(await list_jobs_raw(cluster, namespace=namespace, labels=selector), output)
    found = await list_jobs(cluster, namespace=namespace, labels=selector)
    table = jobs_table(
        (job.object for job in found), datetime.now(UTC), namespaces=all_namespaces, wide=output == "wide"
    )
    return print_table(table, f"No jobs in {f'namespace {namespace}' if namespace else 'any namespace'}.")
