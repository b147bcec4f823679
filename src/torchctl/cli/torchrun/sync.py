"""`sync`: brings the directory's code to a job that is there."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchctl.api.counts import agree, counted
from torchctl.cli.torchrun.common import SECONDS, verb
from torchctl.cli.torchrun.suggestions import job_names

if TYPE_CHECKING:
    from torchctl.cli.torchrun.progress import Teller
    from torchctl.client import Cluster
    from torchctl.client.jobs import Job
    from torchctl.client.sync import Synced
    from torchctl.client.tree import Tree


@verb
@click.argument("name", metavar="JOB", shell_complete=job_names)
@click.option(
    "--workspace",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The directory that is sent. Default: the current one.",
)
@click.option(
    "--no-restart", is_flag=True, help="Only change files: programs that run go on with what they have loaded."
)
@click.option("--watch", is_flag=True, help="Do it again whenever a file changes, until Ctrl-C.")
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    default=120.0,
    show_default="2m",
    metavar="DURATION",
    help="For how long to wait until the workers have the new code.",
)
async def command(
    cluster: "Cluster", name: str, directory: Path | None, no_restart: bool, watch: bool, timeout_s: float
) -> None:
    """Send the current directory to JOB: to one that waits for its code, or into one with --hot-reload that runs.

    Only what changed is sent. All workers take the new code whole and start the program again, in the same pods. Later
    attempts have it too. With --no-restart the files change in each worker as soon as it has them all, and nothing is
    started again. A job with --files-only takes new code in no other way.
    """
    from torchctl.cli.exits import farewell
    from torchctl.cli.torchrun.progress import Teller
    from torchctl.client.jobs import get_job
    from torchctl.runtime.kinds import Key

    job = await get_job(cluster, Key(cluster.namespace, name))
    root = directory or Path()
    with Teller("") as teller:
        send = partial(_once, job, teller=teller, restart=not no_restart, timeout_s=timeout_s)
        tree = await send(root)
        if watch:
            farewell(f"No further changes are sent. {name} goes on.")
            await _watch(job, tree, teller, send)


async def _once(job: "Job", root: Path, *, teller: "Teller", restart: bool, timeout_s: float) -> "Tree":
    from torchctl.client.code import read_code
    from torchctl.client.sync import sync

    code = await read_code(job.cluster, job.namespace, root, teller.progress)
    teller.warn(code.content.tree)
    done = await sync(job, code, teller, restart=restart, patience_s=timeout_s)
    teller.sent(code.sent)
    teller.say(f"{job.name} has {done.revision.removeprefix('sha256:')[:12]}; {outcome(done, restart=restart)}")
    return code.content.tree


def outcome(done: "Synced", *, restart: bool) -> str:
    """Says what became of new code."""
    if done.first:
        return "it starts when it can"
    if done.shared:
        return "workers that run have its files, and run on"
    if not done.workers:
        return "no worker runs now, the next ones have it"
    said = ("runs it", "run it") if restart else ("has its files, and runs on", "have its files, and run on")
    return f"{counted(done.workers, 'worker')} {agree(done.workers, *said)}"


async def _watch(job: "Job", tree: "Tree", teller: "Teller", send: Callable[[Path], Awaitable["Tree"]]) -> None:
    """Syncs after each change. What cannot be sent is told, and the next change is waited for."""
    from torchctl.client.changing import check_alive
    from torchctl.client.code import changes
    from torchctl.client.errors import TimedOut, UsageError

    async for _ in changes(tree):
        try:
            await send(tree.root)
        except (TimedOut, UsageError) as error:
            check_alive(job.object)
            teller.say(f"Error: {error}")
