"""`logs`: what the workers of a job print, by rank."""

from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.common import SECONDS, verb
from torchctl.cli.torchrun.suggestions import job_names, ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchctl.client import Cluster, Job
    from torchctl.client.logs.reading import JobLine
    from torchctl.client.logs.roster import Wanted

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "bright_yellow", "bright_green")
FAILED_TAIL = 50
"""Lines of the failed worker that --failed shows."""


@verb
@click.argument("job", shell_complete=job_names)
@click.option("-f", "--follow", is_flag=True, help="Also what comes, over restarts, until the job ends.")
@click.option(
    "--rank", type=click.IntRange(0), metavar="N", shell_complete=ranks, help="Only the worker on which rank N runs."
)
@click.option("--node", type=click.IntRange(0), metavar="N", help="Only worker N of the job.")
@click.option("--attempt", type=click.IntRange(0), metavar="N", help="Only attempt N. Default: the current one.")
@click.option("--failed", is_flag=True, help="Why the job failed: the first rank that did, and its last lines.")
@click.option("--since", "since_s", type=SECONDS, metavar="DURATION", help="Only the last 30s, 5m, 1h30m, ...")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines of each worker.")
async def command(
    cluster: "Cluster",
    job: str,
    follow: bool,
    rank: int | None,
    node: int | None,
    attempt: int | None,
    failed: bool,
    since_s: float | None,
    tail: int | None,
) -> None:
    """Show what the workers of JOB print.

    Each line begins with its rank, or with its node where torchrun does not say which rank wrote it. With -f, the exit
    status is 1 if the job fails.
    """
    from datetime import UTC, datetime, timedelta

    from torchctl.client.errors import UsageError
    from torchctl.client.jobs import get_job
    from torchctl.client.logs.roster import Wanted
    from torchctl.runtime.kinds import Key

    if failed and any(value not in (None, False) for value in (follow, rank, node, attempt, since_s)):
        raise UsageError("--failed chooses the worker and the attempt by itself", "Leave the other options away.")
    found = await get_job(cluster, Key(cluster.namespace, job))
    if failed:
        await _show_failure(found, FAILED_TAIL if tail is None else tail)
        return
    since = None if since_s is None else datetime.now(UTC) - timedelta(seconds=since_s)
    await show(found, Wanted(follow=follow, rank=rank, node=node, attempt=attempt, since=since, tail=tail))


async def show(job: "Job", wanted: "Wanted") -> None:
    """Prints the lines that are wanted. Raises JobFailed if they are followed and the job fails."""
    from torchctl.api.phases import TERMINAL
    from torchctl.cli.exits import farewell
    from torchctl.client.logs.nothing import nothing_text

    farewell(f"The job goes on. Come back with: kubectl torchrun logs {job.name} -n {job.namespace} -f")
    count = await _print(job, wanted)
    if wanted.follow:
        await job.refresh()
    if not count:
        click.echo(nothing_text(job.object, wanted), err=True)
    if wanted.follow and job.phase in TERMINAL:
        await job.wait()  # raises if it failed


async def _show_failure(job: "Job", tail: int) -> None:
    from torchctl.client.logs.failure import failure_text
    from torchctl.client.logs.roster import Wanted

    failure = job.status.failure
    if failure is None:
        click.echo(f"No worker of {job.name} has failed: it is {job.phase or 'new'}.", err=True)
        return
    click.echo("\n".join(failure_text(job.object)))
    click.echo(f"The last lines of pod {failure.pod}:")
    if not await _print(job, Wanted(pod=failure.pod, every_attempt=True, tail=tail)):
        click.echo("There are none: the pod is gone. runPolicy.podRetention says which pods are kept.", err=True)


async def _print(job: "Job", wanted: "Wanted") -> int:
    """Prints lines as they come and returns how many."""
    import os
    import sys

    from anyio import to_thread

    from torchctl.client.logs.reading import read_logs

    is_terminal = sys.stdout.isatty()
    has_colours = is_terminal and not os.environ.get("NO_COLOR")
    count = 0
    async with read_logs(job, wanted) as batches:
        async for lines in batches:
            # In a thread: a pager that does not read on must not hold up connections.
            await to_thread.run_sync(_write, lines, is_terminal, has_colours, abandon_on_cancel=True)
            count += len(lines)
    return count


def _write(lines: "Sequence[JobLine]", is_terminal: bool, has_colours: bool) -> None:
    import sys

    for line in lines:
        if not line.label:
            click.echo(f"Remark: {line.text}", err=True)
            continue
        prefix = f"[{line.label}]"
        if has_colours:
            prefix = click.style(prefix, fg=COLOURS[line.worker.index % len(COLOURS)])
        sys.stdout.write(f"{prefix} {_text(line.text, is_terminal)}\n")
    sys.stdout.flush()


def _text(text: str, is_terminal: bool) -> str:
    """Returns a line as it is; on a terminal, of a progress bar that overwrites itself, the last state."""
    text = text.rstrip("\r")
    return text.rpartition("\r")[2] if is_terminal else text
