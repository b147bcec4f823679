"""Finds the worker of a job into which somebody wants to reach."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchctl.api.counts import counted
from torchctl.api.labels import JOB_NAME, JOB_UID, ROLE, ROLE_WORKER, selector
from torchctl.api.phases import TERMINAL
from torchctl.client.errors import NotFound, UsageError
from torchctl.client.logs.workers import WORKER, Worker, ranks_in, worker
from torchctl.client.views import JobView
from torchctl.client.wait import job_text
from torchctl.runtime.kinds import Key

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["find_worker", "missing", "pick"]

COUNT = "They count from 0."


async def find_worker(job: "Job", *, rank: int | None = None, node: int | None = None) -> Worker:
    """Returns the running worker of a rank, or with an index; without either, the first one.

    RBAC: list on pods, get on torchrunjobs.

    Raises:
        NotFound: It does not run.
        UsageError: There is no such one, or the pod of that rank is not known.
    """
    if min(rank or 0, node or 0) < 0:
        raise UsageError(f"there is no {'rank' if node is None else 'worker'} {rank if node is None else node}", COUNT)
    labels = selector({JOB_NAME: job.name, JOB_UID: job.uid, ROLE: ROLE_WORKER})
    with job.cluster.explained(f"pods of {job_text(job.key)}"):
        pods = await job.cluster.client.list(WORKER, namespace=job.namespace, labels=labels)
    workers = [*map(worker, pods)]
    found = pick(workers, rank=rank, node=node)
    if found is None:
        await job.refresh()
        raise missing(job.object, workers, rank=rank, node=node)
    return found


def missing(
    job: JobView, workers: Iterable[Worker], *, rank: int | None = None, node: int | None = None
) -> UsageError | NotFound:
    """Returns the error for a worker that does not run: there is no such one, not yet, or no more."""
    name, namespace, phase = job.metadata.name, job.metadata.namespace, job.status.phase
    ranks, nodes = ranks_in(workers), job.status.nodes.desired
    if rank is not None and 0 < ranks <= rank:
        return UsageError(f"there is no rank {rank}: {name} has {ranks} ranks", COUNT)
    if node is not None and 0 < nodes <= node:
        return UsageError(f"there is no worker {node}: {name} has {counted(nodes, 'node')}", COUNT)
    who = "worker" if rank is None and node is None else f"rank {rank}" if node is None else f"worker {node}"
    what = f"no {who} of {job_text(Key(namespace, name))} runs: it is {phase or 'new'}"
    if phase in TERMINAL:
        return NotFound(what, f"`kubectl torchrun logs {name} -n {namespace}` shows what its workers wrote.")
    return NotFound(what, f"Wait with `kubectl torchrun wait {name} --for=Running -n {namespace}`.")


def pick(workers: Iterable[Worker], *, rank: int | None = None, node: int | None = None) -> Worker | None:
    """Returns the running worker that is meant, of the newest attempt; None if it does not run.

    Raises:
        UsageError: Both were named, or the pod of that rank is not known.
    """
    if rank is not None and node is not None:
        raise UsageError("rank and node exclude each other", "Leave one of them away.")
    running = [each for each in workers if each.has_started and not each.has_ended]
    newest = max((each.attempt for each in running), default=0)
    running = sorted((each for each in running if each.attempt == newest), key=lambda each: each.index)
    if rank is None:
        return next((each for each in running if node is None or each.index == node), None)
    if any(each.node_rank is None or each.ranks is None for each in running):
        raise UsageError(
            f"the pod of rank {rank} is not known, because torchrun places the ranks of this job while it runs",
            "Name the worker by its node (--node).",
        )
    return next((each for each in running if each.runs(rank)), None)
