"""`wait`: until a job is in a phase or has a condition."""

from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.common import SECONDS, verb
from torchctl.cli.torchrun.suggestions import job_names

if TYPE_CHECKING:
    from torchctl.client import Cluster
    from torchctl.client.wait import Goal


@verb
@click.argument("job", shell_complete=job_names)
@click.option(
    "--for",
    "until",
    default="finished",
    show_default=True,
    metavar="GOAL",
    help="finished, a phase such as Running, deleted, condition=TYPE or condition=TYPE=False.",
)
@click.option("--timeout", "timeout_s", type=SECONDS, default=None, metavar="DURATION", help="Default: no end.")
async def command(cluster: "Cluster", job: str, until: str, timeout_s: float | None) -> None:
    """Wait until JOB is in a phase or has a condition. Exit status 1 if it ended otherwise, 5 if it took too long."""
    from torchctl.cli.exits import farewell
    from torchctl.client.errors import NotFound
    from torchctl.client.jobs import get_job
    from torchctl.client.wait import GONE, Goal
    from torchctl.runtime.kinds import Key

    goal = Goal.parse(until)
    farewell(f"The job goes on. Come back with: kubectl torchrun wait {job} --for={until} -n {cluster.namespace}")
    try:
        found = await get_job(cluster, Key(cluster.namespace, job))
        await found.wait(goal, timeout_s=timeout_s)
    except NotFound:
        if goal.word != GONE:
            raise
        # Whoever deleted it may have been quicker than this command.
        return click.echo(f"{job} is {GONE}")
    return click.echo(f"{found.name} {_reached(goal, found.phase)}")


def _reached(goal: "Goal", phase: str) -> str:
    if goal.condition:
        return f"has {goal}"
    return f"is {phase if goal.word != 'deleted' else goal}"
