"""`version`: of this program, the operator and the API server."""

from typing import TYPE_CHECKING, Any

import click

from torchctl.cli.torchrun.common import COMMON, connected

if TYPE_CHECKING:
    from torchctl.client import Cluster


@click.command(params=[*COMMON])
@click.option("--client", "client_only", is_flag=True, help="Ask no cluster.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), default=None, help="Default: lines.")
def command(client_only: bool, output: str | None) -> None:
    """Show the versions of this program, the operator and the API server."""
    from importlib.metadata import version

    from torchctl.cli.torchrun.output import print_document

    found: dict[str, Any] = {"client": version("torchctl")}
    if client_only:
        return print_document(found, output)
    if output is None:
        print_document(found, output)  # it is known whatever the cluster says
        return print_document(connected(_of_cluster), output)
    return print_document(found | connected(_of_cluster), output)


async def _of_cluster(cluster: "Cluster") -> dict[str, Any]:
    from torchctl.client.installed import operator_image

    with cluster.explained("the API server's version"):
        server = await cluster.client.server_version()
    return {"operator": await operator_image(cluster), "apiServer": server}
