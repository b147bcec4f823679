"""The jobs that a verb is for: by name, by labels, or all of the namespace."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchctl.cli.torchrun.common import SECONDS
from torchctl.cli.torchrun.suggestions import job_names

if TYPE_CHECKING:
    from torchctl.client import Cluster
    from torchctl.client.jobs import Job
    from torchctl.runtime.kinds import Key

__all__ = ["chosen", "each", "jobs_argument", "selector_option", "wait_options"]

F = TypeVar("F", bound=Callable[..., Any])

jobs_argument = click.argument("names", nargs=-1, metavar="[JOB]...", shell_complete=job_names)
selector_option = click.option("-l", "--selector", default="", metavar="LABELS", help="All jobs with these labels.")


def wait_options(goal: str) -> Callable[[F], F]:
    """Adds `--wait`, which returns when the goal is reached, and `--timeout`."""

    def add(function: F) -> F:
        timeout = click.option(
            "--timeout",
            "timeout_s",
            type=SECONDS,
            default=300.0,
            show_default="5m",
            metavar="DURATION",
            help="For how long to wait.",
        )
        return click.option("--wait", is_flag=True, help=f"Return when {goal}.")(timeout(function))

    return add


async def chosen(
    cluster: "Cluster",
    names: tuple[str, ...],
    selector: str,
    everything: bool = False,
    *,
    gone: "Callable[[Key], Awaitable[bool]] | None" = None,
) -> "list[Job]":
    """Returns the jobs that were named, each once.

    Args:
        gone: Asked about a name that no job has; true if all is well without it.

    Raises:
        UsageError: None was named, or in two ways.
        NotFound: One of them does not exist.
    """
    from torchctl.client.errors import UsageError
    from torchctl.client.jobs import list_jobs

    ways = [bool(names), bool(selector), everything]
    if sum(ways) != 1:
        raise UsageError("jobs are chosen in two ways" if any(ways) else "no job was named", _STEPS[any(ways)])
    if names:
        found = [await _named(cluster, name, gone) for name in dict.fromkeys(names)]
        return [job for job in found if job is not None]
    return await list_jobs(cluster, namespace=cluster.namespace, labels=selector)


async def _named(cluster: "Cluster", name: str, gone: "Callable[[Key], Awaitable[bool]] | None") -> "Job | None":
    from torchctl.client.errors import NotFound
    from torchctl.client.jobnames import job_name
    from torchctl.client.jobs import get_job
    from torchctl.runtime.kinds import Key

    key = Key(cluster.namespace, job_name(name))
    try:
        return await get_job(cluster, key)
    except NotFound:
        if gone is None or not await gone(key):
            raise
        return None


async def each(jobs: "list[Job]", change: "Callable[[Job], Awaitable[Any]]") -> None:
    """Does something with each job. If it fails for one, the others follow all the same; then the first failure counts.

    Raises:
        ClientError: The first failure; the others have been told.
    """
    from torchctl.client.errors import ClientError

    failures: list[ClientError] = []
    for job in jobs:
        try:
            await change(job)
        except ClientError as failure:
            failures.append(failure)
    for further in failures[1:]:
        click.echo(f"Error: {further}", err=True)
    if failures:
        raise failures[0]
    if not jobs:
        click.echo("No jobs found.", err=True)


_STEPS = (
    "Write their names behind the verb; `kubectl torchrun list` shows them.",
    "Name them, or choose them with -l or --all.",
)
"""The next step if none was chosen, and if they were chosen more than once."""
