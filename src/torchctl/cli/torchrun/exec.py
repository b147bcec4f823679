"""`exec`: a command, or a shell, where a rank runs."""

from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.common import verb
from torchctl.cli.torchrun.suggestions import job_names, ranks

if TYPE_CHECKING:
    from torchctl.client import Cluster, Job

SHELL = ("sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi")


class _WithWords(click.Command):
    """A command that says where the words of another command stand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = "If it belongs to the command, write the command behind --."
            raise click.UsageError(f"There is no option {error.option_name}. {hint}", ctx) from None


@verb
@click.argument("job", shell_complete=job_names)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARG]...]")
@click.option(
    "--rank",
    type=click.IntRange(0),
    metavar="N",
    shell_complete=ranks,
    help="Where rank N runs. Default: on the first worker.",
)
@click.option("--node", type=click.IntRange(0), metavar="N", help="On worker N of the job.")
@click.option("-i", "--stdin", is_flag=True, help="Hand standard input on, also if it is no terminal.")
@click.option("-t", "--tty", is_flag=True, expose_value=False, help="As for kubectl; on a terminal it needs no asking.")
async def _exec(
    cluster: "Cluster", job: str, words: tuple[str, ...], rank: int | None, node: int | None, stdin: bool
) -> int:
    """Run a command in a worker of JOB, without one a shell. The exit status is the command's.

    On a terminal the command has one too.
    """
    from torchctl.client.jobs import get_job
    from torchctl.runtime.kinds import Key

    found = await get_job(cluster, Key(cluster.namespace, job))
    return await _run(found, words or SHELL, rank=rank, node=node, stdin=stdin)


command = _WithWords("exec", callback=_exec.callback, params=_exec.params, help=_exec.help)


async def _run(job: "Job", words: tuple[str, ...], *, rank: int | None, node: int | None, stdin: bool) -> int:
    from contextlib import nullcontext

    from torchctl.api.names import TRAINER
    from torchctl.client import terminal
    from torchctl.client.workers import find_worker
    from torchctl.runtime.client.execstream import run_command

    worker = await find_worker(job, rank=rank, node=node)
    tty = terminal.is_interactive()
    with job.cluster.explained(f"pod {worker.pod} of {job.name}"):
        async with run_command(
            job.cluster.client, worker.pod, job.namespace, words, container=TRAINER, stdin=stdin or tty, tty=tty
        ) as running:
            with terminal.raw() if tty else nullcontext():
                return await terminal.attend(running, stdin=stdin or tty, tty=tty)
