"""Names from the cluster for a shell that completes a word: within a second, and silent if that fails."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from torchctl.cli.torchrun.common import target

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from torchctl.client import Cluster, Target

__all__ = ["job_names", "queue_names", "ranks"]

PATIENCE_S = 1.0
"""Seconds of asking after which a shell gets no suggestions instead of late ones."""

MOST_RANKS = 256
"""Ranks that are suggested; nobody reads a longer list."""

Read = Callable[["Cluster"], Awaitable[Iterable[tuple[str, str]]]]
"""Reads names, each with a word about it."""


def job_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Names of the namespace's jobs, with their phases."""
    from torchctl.client.jobs import list_jobs

    async def read(cluster: "Cluster") -> Iterable[tuple[str, str]]:
        return [(job.name, job.phase) for job in await list_jobs(cluster, namespace=cluster.namespace)]

    return _suggest(context, incomplete, read)


def queue_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Names of the namespace's queues, with the GPUs of their nodes."""
    from torchctl.client.queues import list_queues

    async def read(cluster: "Cluster") -> Iterable[tuple[str, str]]:
        found = await list_queues(cluster, namespace=cluster.namespace)
        return [(queue.metadata.name, f"{queue.spec.node_resources.gpus} GPUs a node") for queue in found]

    return _suggest(context, incomplete, read)


def ranks(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The ranks of the job that the command line names, as many as it has GPUs, else pods."""
    from torchctl.client.jobs import get_job
    from torchctl.runtime.kinds import Key

    async def read(cluster: "Cluster") -> Iterable[tuple[str, str]]:
        # click stops at the option without its value, and leaves the words before it where they were.
        name = context.params.get("job") or context.args[0]
        job = await get_job(cluster, Key(cluster.namespace, name))
        return [(str(rank), "") for rank in range(min(job.status.gpus or job.status.nodes.desired, MOST_RANKS))]

    return _suggest(context, incomplete, read)


def _suggest(context: click.Context, incomplete: str, read: Read) -> "list[CompletionItem]":
    import anyio
    from click.shell_completion import CompletionItem

    try:
        found = anyio.run(_read, target(context), read)
    except Exception:  # a shell that completes a word has no place for an error
        return []
    return [CompletionItem(name, help=word or None) for name, word in found if name.startswith(incomplete)]


async def _read(where: "Target", read: Read) -> Iterable[tuple[str, str]]:
    import anyio

    from torchctl.client.cluster import connect

    with anyio.fail_after(PATIENCE_S):
        async with connect(where) as cluster:
            return await read(cluster)
