"""One queue and everything that belongs to it. Together with the time, it is all that plan and status read. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from torchctl.api.job import TorchrunJob
from torchctl.api.kube import ConfigMap, KaiQueue
from torchctl.api.phases import TERMINAL
from torchctl.api.queue import TorchrunQueue
from torchctl.api.volcano import VolcanoQueue
from torchctl.controllers.queue.claims import KAI, VOLCANO, Queues, SchedulerQueue
from torchctl.controllers.queuespec.policy import manages_kai, manages_volcano
from torchctl.runtime.kinds import Object

__all__ = ["FREEZING", "Observed"]

FREEZING = timedelta(seconds=5)
"""Time after a queue's deletion in which a job may still freeze its template from an older read of the queue."""


@dataclass(frozen=True)
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
        volcano_available: Whether the cluster has Volcano's Queue kind, and lets us watch it.
        volcano_queues: Every Volcano Queue, by name; as last seen if Volcano is not available any more.
        guests: The jobs of other TorchrunQueues that refer to a scheduler's Queue which this one made.
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
    volcano_available: bool = False
    volcano_queues: Mapping[str, VolcanoQueue] = field(default_factory=dict)
    guests: tuple[TorchrunJob, ...] = ()
    config_maps: tuple[ConfigMap, ...] = ()
    kept_workspaces: int = 0

    @cached_property
    def kai(self) -> Queues:
        """KAI's Queues as this queue sees them."""
        spec = self.queue.spec
        return Queues(
            scheduler=KAI,
            name=spec.kai_queue,
            managed=manages_kai(spec),
            available=self.kai_available,
            by_name=self.kai_queues,
            uid=self.queue.metadata.uid,
        )

    @cached_property
    def volcano(self) -> Queues:
        """Volcano's Queues as this queue sees them."""
        spec = self.queue.spec
        return Queues(
            scheduler=VOLCANO,
            name=spec.scheduling.volcano_queue,
            managed=manages_volcano(spec),
            available=self.volcano_available,
            by_name=self.volcano_queues,
            uid=self.queue.metadata.uid,
        )

    @property
    def queues(self) -> tuple[Queues, ...]:
        """The Queues of all schedulers that have some."""
        return self.kai, self.volcano

    @property
    def claimed(self) -> tuple[SchedulerQueue, ...]:
        """The Queues of all schedulers that this queue claimed."""
        return tuple(found for queues in self.queues for found in queues.claimed)

    @property
    def unfinished(self) -> tuple[TorchrunJob, ...]:
        """Jobs that have not ended, so that they may need what the queue has or had; guests once they have begun."""
        own = (job for job in self.jobs if job.status.phase not in TERMINAL)
        begun = (job for job in self.guests if job.status.phase not in TERMINAL and job.status.queue_revision)
        return (*own, *begun)

    def holding(self, now: datetime) -> tuple[TorchrunJob, ...]:
        """Returns the jobs for which a deleted queue stays: unfinished ones that have frozen their template.

        The others wait for a new queue of this name, which can come only once this one is gone.
        """
        return tuple(job for job in self.unfinished if job.status.queue_revision or self.freezing_s(now))

    def freezing_s(self, now: datetime) -> float:
        """Returns the seconds for which a job may still freeze its template from this deleted queue; 0 if it stays."""
        deleted = self.queue.metadata.deletion_timestamp
        return max((deleted + FREEZING - now).total_seconds(), 0.0) if deleted is not None else 0.0
