"""Finds the worker of a job into which somebody wants to reach."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchctl.api.labels import JOB_NAME, JOB_UID, ROLE, ROLE_WORKER, selector
from torchctl.client.errors import NotFound, UsageError
from torchctl.client.logs.workers import WORKER, Worker, worker
from torchctl.client.wait import job_text

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["find_worker", "pick"]


async def find_worker(job: "Job", *, rank: int | None = None, node: int | None = None) -> Worker:
    """Returns the running worker of a rank, or with an index; without either, the first one. RBAC: list on pods.

    Raises:
        NotFound: It does not run.
        UsageError: The pod of that rank is not known.
    """
    labels = selector({JOB_NAME: job.name, JOB_UID: job.uid, ROLE: ROLE_WORKER})
    with job.cluster.explained(f"pods of {job_text(job.key)}"):
        pods = await job.cluster.client.list(WORKER, namespace=job.namespace, labels=labels)
    found = pick(map(worker, pods), rank=rank, node=node)
    if found is None:
        who = "worker" if rank is None and node is None else f"rank {rank}" if node is None else f"worker {node}"
        raise NotFound(
            f"no {who} of {job_text(job.key)} runs: it is {job.phase or 'new'}",
            f"Wait with `kubectl torchrun wait {job.name} --for=Running`.",
        )
    return found


def pick(workers: Iterable[Worker], *, rank: int | None = None, node: int | None = None) -> Worker | None:
    """Returns the running worker that is meant, of the newest attempt; None if it does not run.

    Raises:
        UsageError: Both were named, or the pod of that rank is not known.
    """
    if rank is not None and node is not None:
        raise UsageError("--rank and --node exclude each other", "Leave one of them away.")
    running = [each for each in workers if each.has_started and not each.has_ended]
    newest = max((each.attempt for each in running), default=0)
    running = sorted((each for each in running if each.attempt == newest), key=lambda each: each.index)
    if rank is None:
        return next((each for each in running if node is None or each.index == node), None)
    if any(each.node_rank is None or each.ranks is None for each in running):
        raise UsageError(
            f"the pod of rank {rank} is not known, because torchrun places the ranks of this job while it runs",
            "Name the worker with --node.",
        )
    return next((each for each in running if each.runs(rank)), None)
