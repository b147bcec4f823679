"""One queue and everything that belongs to it. Together with the time, it is all that plan and status read. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from torchctl.api.job import TorchrunJob
from torchctl.api.kube import ConfigMap, KaiQueue
from torchctl.api.phases import TERMINAL
from torchctl.api.queue import TorchrunQueue
from torchctl.controllers.queue.kai import claimed_by
from torchctl.runtime.kinds import Object

__all__ = ["FREEZING", "Observed"]

FREEZING = timedelta(seconds=5)
"""Time after a queue's deletion in which a job may still freeze its template from an older read of the queue."""


@dataclass(frozen=True, slots=True)
class Observed:
    """All that the reconciler knows of a queue.

    Attributes:
        queue: The queue itself.
        jobs: The TorchrunJobs that name it.
        kai_available: Whether the cluster has KAI's Queue kind, and lets us watch it.
        kai_queues: Every KAI Queue, by name; as last seen if KAI is not available any more.
        allowed_parents: The parents under which the operator may make KAI Queues; None allows all.
        coordinated: Whether the coordinator is on.
        objects: Existing objects under the kinds and names of spec.resources, whoever made them.
        config_maps: The ConfigMaps that the queue made.
        kept_workspaces: How many jobs have ended and still have their workspace claim.
    """

    queue: TorchrunQueue
    jobs: tuple[TorchrunJob, ...]
    kai_available: bool
    kai_queues: Mapping[str, KaiQueue]
    allowed_parents: frozenset[str] | None = None
    coordinated: bool = False
    objects: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    config_maps: tuple[ConfigMap, ...] = ()
    kept_workspaces: int = 0

    @property
    def kai_queue(self) -> KaiQueue | None:
        """The KAI Queue that the spec names, whoever owns it."""
        return self.kai_queues.get(self.queue.spec.kai_queue or "")

    @property
    def is_foreign(self) -> bool:
        """Whether the KAI Queue that the spec names belongs to somebody else."""
        found = self.kai_queue
        return found is not None and not claimed_by(self.queue.metadata.uid)(found.metadata)

    @property
    def claimed(self) -> tuple[KaiQueue, ...]:
        """The KAI Queues in the cache that this queue claimed."""
        ours = claimed_by(self.queue.metadata.uid)
        return tuple(found for found in self.kai_queues.values() if ours(found.metadata))

    @property
    def in_sight(self) -> tuple[KaiQueue, ...]:
        """The claimed KAI Queues that can be acted on: none while KAI Queues cannot be watched."""
        return self.claimed if self.kai_available else ()

    @property
    def unfinished(self) -> tuple[TorchrunJob, ...]:
        """Jobs that have not ended, so that they may need what the queue has or had."""
        return tuple(job for job in self.jobs if job.status.phase not in TERMINAL)

    def holding(self, now: datetime) -> tuple[TorchrunJob, ...]:
        """Returns the jobs for which a deleted queue stays: unfinished ones that have frozen their template.

        The others wait for a new queue of this name, which can come only once this one is gone.
        """
        return tuple(job for job in self.unfinished if job.status.queue_revision or self.freezing_s(now))

    def freezing_s(self, now: datetime) -> float:
        """Returns the seconds for which a job may still freeze its template from this deleted queue; 0 if it stays."""
        deleted = self.queue.metadata.deletion_timestamp
        return max((deleted + FREEZING - now).total_seconds(), 0.0) if deleted is not None else 0.0
