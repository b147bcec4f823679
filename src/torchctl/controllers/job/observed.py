"""One job and everything that belongs to it: the only input of plan and status besides time and settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchctl.api.conditions import JobCondition
from torchctl.api.job import TorchrunJob
from torchctl.api.kube import ControllerRevision, Job, PersistentVolumeClaim, Pod, Service
from torchctl.api.kueue import KueueWorkload
from torchctl.api.labels import KUEUE_PAUSED
from torchctl.api.queue import TorchrunQueue
from torchctl.controllers.gangs.groups import PodGroup
from torchctl.controllers.gangs.scheduler import GangScheduler, PodGroupScheduler
from torchctl.controllers.job.steps.dependencies import Upstream
from torchctl.runtime.conditions import is_true
from torchctl.runtime.kinds import Kind

__all__ = ["Observed", "Started"]


@dataclass(frozen=True, slots=True)
class Started:
    """The latest attempt that the children tell of, whatever status says.

    Args:
        child: What tells of it, as `Job demo-r1`.
        made: Whether it is the Job of the attempt, and not only the Service that was turned to it.
        since: When that was made.
        template: The name of the job's newest ControllerRevision; empty if none is left.
    """

    attempt: int
    child: str
    made: bool
    since: datetime | None
    template: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The objects found for a job. A foreign object that has a child's name counts as absent.

    Args:
        revision: The ControllerRevision that status.queueRevision names.
        old_revisions: Those of the job that were made before that one.
        workspace: The claim `<job>-workspace`.
        claims: Existing claims that the job names, None for one that is not there.
        cache: The claim in which the queue keeps what was uploaded, None if it is not there or none is named.
        checkpoints: The claim `<job>-checkpoints`, also one that an earlier job of this name left.
        sync_pods: Every try that is there.
        started: The latest attempt that the children tell of; None if they tell of none.
        pods: The workers of the attempt, without those that somebody else's suspension of its Job stopped.
        withdrawn: Those pods of the attempt, which are being deleted: of its last run, whatever has begun since.
        groups: The PodGroups that the workers say they are in, by name, whoever made them.
        workloads: What Kueue has made of the attempt's Job and has not ended, the oldest first: none if Kueue does not
            manage the Job or has not seen it yet, two while a Job that runs grows.
        place: The place of the Workload that waits in Kueue's queue, for a sentence; empty if it is not known.
        old_jobs: The Jobs of earlier attempts.
        old_pods: The workers of earlier attempts.
        old_workloads: What Kueue has made of the Jobs of earlier attempts and has not ended.
        old_groups: The PodGroups of earlier attempts.
        upstream: Jobs that this one waits for, and those that these wait for; None for one that is not there.
        awaited: Whether another job waits for this one.
        queue_state: The state of the gang scheduler's own queue in its words: empty if there is no such queue, None
            if that is not known.
        absent: The kinds of PodGroups, and Kueue's Workloads, that the API server does not serve.
        refused: Those of them that it has never let us read, with its words: whether they are there is open.
        warning: The newest Warning Event about the first late worker, if the plan asked for it.
        create_failure: The Job controller's words on why it cannot create the workers, if the plan asked for them.
        workers_read: Whether the workers, those of earlier attempts too, were read live because the plan asked for it.
    """

    job: TorchrunJob
    queue: TorchrunQueue | None = None
    revision: ControllerRevision | None = None
    old_revisions: tuple[ControllerRevision, ...] = ()
    workspace: PersistentVolumeClaim | None = None
    claims: Mapping[str, PersistentVolumeClaim | None] = field(default_factory=dict)
    cache: PersistentVolumeClaim | None = None
    checkpoints: PersistentVolumeClaim | None = None
    sync_pods: tuple[Pod, ...] = ()
    service: Service | None = None
    worker_job: Job | None = None
    started: Started | None = None
    pods: tuple[Pod, ...] = ()
    withdrawn: tuple[Pod, ...] = ()
    podgroup: PodGroup | None = None
    groups: Mapping[str, PodGroup] = field(default_factory=dict)
    workloads: tuple[KueueWorkload, ...] = ()
    place: str = ""
    old_jobs: tuple[Job, ...] = ()
    old_pods: tuple[Pod, ...] = ()
    old_workloads: tuple[KueueWorkload, ...] = ()
    old_groups: tuple[PodGroup, ...] = ()
    upstream: Upstream = field(default_factory=dict)
    awaited: bool = False
    queue_state: str | None = None
    absent: frozenset[Kind[Any]] = frozenset()
    refused: Mapping[Kind[Any], str] = field(default_factory=dict)
    create_failure: str = ""
    warning: str = ""
    workers_read: bool = False

    @property
    def held(self) -> bool:
        """Whether somebody else has suspended the attempt's Job, as Kueue does with Jobs that it has not admitted.

        A Job that is released is held until its controller says so too: its start time is the old one until then.
        """
        return self.stands_still and not is_true(self.job.status.conditions, JobCondition.SUSPENDED)

    @property
    def stands_still(self) -> bool:
        """Whether the attempt's Job is suspended, whoever did it: its pods are gone or about to go."""
        job = self.worker_job
        if job is None:
            return False
        if not job.spec.get("suspend") and not is_true(job.status.conditions, "Suspended"):
            return False
        return not job.status.ends(succeeding=False)

    @property
    def paused(self) -> bool:
        """Whether this operator keeps the attempt's Workload inactive."""
        return any(KUEUE_PAUSED in one.metadata.annotations and not one.spec.active for one in self.workloads)

    @property
    def was_started(self) -> bool:
        """Whether the attempt's Job was ever there. From then on it counts as missing if it is not there.

        Its pods outlive it for a moment, and tell of it as well.
        """
        return bool(self.job.status.attempt_start_time or self.worker_job or self.pods)

    def lacks(self, scheduler: GangScheduler) -> bool:
        """Whether the cluster does not serve what the gang scheduler needs, or keeps it from us."""
        needs = scheduler.needs
        return needs is not None and (needs.kind in self.absent or needs.kind in self.refused)

    def refusal(self, scheduler: GangScheduler) -> str:
        """Explains why nobody knows whether the gang scheduler is there, with the next step; empty if it is known."""
        needs = scheduler.needs
        if needs is None or needs.kind not in self.refused:
            return ""
        return (
            f"the operator may not read {needs.kind.resource}: {self.refused[needs.kind]}; give its ServiceAccount the "
            "rights of this version, this job goes on by itself then"
        )

    def makes_group(self, scheduler: PodGroupScheduler) -> bool:
        """Whether the attempt gets a PodGroup, and can."""
        return scheduler.own_group and not self.lacks(scheduler)
