"""`rollback`: takes a running job back to the code it had before."""

from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.common import SECONDS, verb

if TYPE_CHECKING:
    from torchctl.client import Cluster


@verb
@click.argument("name", metavar="JOB")
@click.option("--to", default="", metavar="REVISION", help="The revision, or its beginning. Default: the one before.")
@click.option(
    "--no-restart", is_flag=True, help="Only change files: programs that run go on with what they have loaded."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    default=120.0,
    show_default="2m",
    metavar="DURATION",
    help="For how long to wait until the workers run it.",
)
async def command(cluster: "Cluster", name: str, to: str, no_restart: bool, timeout_s: float) -> None:
    """Take JOB, which runs with --hot-reload, back to the code that it had before the last `sync`.

    Nothing is sent: the job keeps what was sent to it, whoever sent it.
    """
    from torchctl.cli.torchrun.progress import Teller
    from torchctl.cli.torchrun.sync import outcome
    from torchctl.client.jobs import get_job
    from torchctl.client.rollback import rollback
    from torchctl.runtime.kinds import Key

    job = await get_job(cluster, Key(cluster.namespace, name))
    with Teller("") as teller:
        done = await rollback(job, teller, to=to, restart=not no_restart, patience_s=timeout_s)
        what = outcome(done, restart=not no_restart)
        teller.say(f"{name} is back at {done.revision.removeprefix('sha256:')[:12]}; {what}")
