"""`queues`: the queues of a namespace."""

from typing import TYPE_CHECKING

from torchctl.cli.torchrun.common import verb
from torchctl.cli.torchrun.output import all_namespaces_option, is_raw, output_option, print_objects, print_table

if TYPE_CHECKING:
    from torchctl.client import Cluster


@verb
@all_namespaces_option
@output_option
async def command(cluster: "Cluster", all_namespaces: bool, output: str | None) -> None:
    """List queues."""
    from datetime import UTC, datetime

    from torchctl.client.queues import list_queues, list_queues_raw
    from torchctl.client.tables import queues_table

    namespace = "" if all_namespaces else cluster.namespace
    if is_raw(output):
        return print_objects(await list_queues_raw(cluster, namespace=namespace), output)
    found = await list_queues(cluster, namespace=namespace)
    table = queues_table(found, datetime.now(UTC), namespaces=all_namespaces, wide=output == "wide")
    return print_table(table, f"No queues in {f'namespace {namespace}' if namespace else 'any namespace'}.")
