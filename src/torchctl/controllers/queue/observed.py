"""One queue and everything that belongs to it: the only input of plan and status besides time. Pure."""

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
"""For so long after a queue's deletion a job may still freeze its template from what it saw of it before."""


@dataclass(frozen=True, slots=True)
class Observed:
    """All that the reconciler knows of a queue.

    Attributes:
        queue: The queue itself.
        jobs: The TorchrunJobs that name it.
        kai_available: Whether the cluster has KAI's Queue kind, and lets us watch it.
        kai_queues: Every KAI Queue, by name; as last seen, where it is not available any more.
        allowed_parents: Under which parents the operator may make KAI Queues; None: under any.
        objects: What there is of the kinds and names that spec.resources ask for, whoever made it.
        config_maps: The ConfigMaps that the queue made.
        kept_workspaces: How many jobs have ended and still have their workspace claim.
    """

    queue: TorchrunQueue
    jobs: tuple[TorchrunJob, ...]
    kai_available: bool
    kai_queues: Mapping[str, KaiQueue]
    allowed_parents: frozenset[str] | None = None
    objects: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    config_maps: tuple[ConfigMap, ...] = ()
    kept_workspaces: int = 0

    @property
    def kai_queue(self) -> KaiQueue | None:
        """The KAI Queue of the name that the spec asks for, whoever owns it."""
        return self.kai_queues.get(self.queue.spec.kai_queue or "")

    @property
    def is_foreign(self) -> bool:
        """Whether the KAI Queue of the name that the spec asks for is somebody else's."""
        found = self.kai_queue
        return found is not None and not claimed_by(self.queue.metadata.uid)(found.metadata)

    @property
    def claimed(self) -> tuple[KaiQueue, ...]:
        """The KAI Queues that this queue made, as far as the cache knows."""
        ours = claimed_by(self.queue.metadata.uid)
        return tuple(found for found in self.kai_queues.values() if ours(found.metadata))

    @property
    def in_sight(self) -> tuple[KaiQueue, ...]:
        """Those of them that something can be done about: of a kind that cannot be watched the cache is the past."""
        return self.claimed if self.kai_available else ()

    @property
    def unfinished(self) -> tuple[TorchrunJob, ...]:
        """Jobs that may need what the queue has, or had when they started."""
        return tuple(job for job in self.jobs if job.status.phase not in TERMINAL)

    def holding(self, now: datetime) -> tuple[TorchrunJob, ...]:
        """Jobs for which a queue that is being deleted stays: the unfinished ones that have frozen their template.

        The others wait for a queue of this name. They would otherwise hold up what they wait for: its deletion.
        """
        return tuple(job for job in self.unfinished if job.status.queue_revision or self.freezing_s(now))

    def freezing_s(self, now: datetime) -> float:
        """For how long a job may still freeze its template from this queue, which is being deleted."""
        deleted = self.queue.metadata.deletion_timestamp
        return max((deleted + FREEZING - now).total_seconds(), 0.0) if deleted is not None else 0.0
