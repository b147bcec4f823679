"""Decides whose logs are read, from the pods and the job as they change. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from torchctl.api.counts import counted
from torchctl.api.phases import TERMINAL
from torchctl.client.errors import UsageError
from torchctl.client.logs.workers import Worker, numbered, ranks_in
from torchctl.client.views import JobView

__all__ = ["Roster", "Wanted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The logs that somebody wants to see.

    Attributes:
        follow: Also what will be written, until the job has ended.
        attempt: Only of this attempt; None for the current one and, if followed, those after it.
        rank: Only of the worker on which this rank runs.
        node: Only of the worker with this index.
        pod: Only of the worker with this pod.
        every_attempt: Also of earlier attempts whose pods are still there.
        since: Only from this time on.
        tail: Only so many last lines of each worker.
    """

    follow: bool = False
    attempt: int | None = None
    rank: int | None = None
    node: int | None = None
    pod: str = ""
    every_attempt: bool = False
    since: datetime | None = None
    tail: int | None = None


class Roster:
    """The workers whose logs are read: each once, as soon as it has started."""

    def __init__(self, wanted: Wanted, job: JobView) -> None:
        self._wanted = wanted
        self._job: JobView | None = job
        self._begun: set[str] = set()
        self._workers: dict[str, Worker] = {}
        self._first: int | None = wanted.attempt

    def __repr__(self) -> str:
        return f"<Roster of {len(self._workers)} begun={len(self._begun)}>"

    @property
    def workers(self) -> list[Worker]:
        """The workers that are wanted."""
        return [each for each in self._workers.values() if self._is_wanted(each)]

    def see_job(self, job: JobView | None) -> None:
        """Notes how the job is; None if it does not exist any more."""
        self._job = job

    def see_workers(self, workers: Iterable[Worker]) -> None:
        """Notes all workers that there are, of every attempt."""
        self._workers = {each.uid: each for each in workers}
        self._check_rank()
        self._check_node()
        if self._first is None and self._workers:
            self._first = self._newest()

    def begin(self) -> list[Worker]:
        """Returns the workers whose logs shall be read from now on."""
        found = [each for each in self.workers if each.has_started and each.uid not in self._begun]
        self._begun |= {each.uid for each in found}
        return sorted(found, key=lambda each: (each.attempt, each.index))

    def has_ended(self, uid: str) -> bool:
        """Tells if a worker writes nothing more: its trainer has ended, its pod is gone, or the job has ended."""
        return uid not in self._workers or self._workers[uid].has_ended or self._is_job_over

    @property
    def _is_job_over(self) -> bool:
        return self._job is None or self._job.status.phase in TERMINAL

    @property
    def is_complete(self) -> bool:
        """True once no further worker will begin."""
        if self._job is None or self._is_job_over or not self._wanted.follow:
            return True
        return self._wanted.attempt is not None and self._job.status.attempt > self._wanted.attempt

    def _newest(self) -> int:
        """Returns the current attempt, or the last one that has a log if that one has none yet."""
        started = [each.attempt for each in self._workers.values() if each.has_started]
        current = self._job.status.attempt if self._job is not None else 0
        return min(current, max(started, default=current))

    def _is_wanted(self, worker: Worker) -> bool:
        wanted = self._wanted
        return (
            self._is_in_time(worker)
            and (wanted.node is None or worker.index == wanted.node)
            and (wanted.rank is None or worker.runs(wanted.rank))
            and wanted.pod in ("", worker.pod)
        )

    def _is_in_time(self, worker: Worker) -> bool:
        """Tells if the attempt of a worker is wanted."""
        if self._wanted.every_attempt:
            return True
        if self._first is None or not self._wanted.follow or self._wanted.attempt is not None:
            return worker.attempt == self._first
        return worker.attempt >= self._first

    def _check_rank(self) -> None:
        rank, there = self._wanted.rank, list(self._workers.values())
        if rank is None or not there or numbered(there, rank):
            return
        if any(each.node_rank is None or each.ranks is None for each in there):
            raise UsageError(
                f"the pod of rank {rank} is not known, because torchrun places the ranks of this job while it runs",
                "Name the worker by its node (--node).",
            )
        # Its pod may come later; a rank beyond the last one never does.
        ranks = ranks_in(there)
        if 0 < ranks <= rank:
            raise UsageError(f"there is no rank {rank}: the job has {ranks} ranks", "They count from 0.")

    def _check_node(self) -> None:
        node, job = self._wanted.node, self._job
        if node is None or job is None or any(each.index == node for each in self._workers.values()):
            return
        elastic, desired = job.spec.elastic, job.status.nodes.desired or job.spec.num_nodes or 0
        nodes = max(desired, elastic.max_nodes) if elastic is not None else desired
        if 0 < nodes <= node:
            raise UsageError(f"there is no node {node}: the job has {counted(nodes, 'node')}", "They count from 0.")
