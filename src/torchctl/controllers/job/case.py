"""One job at one moment: what every decision about its life goes by."""

from dataclasses import dataclass
from datetime import datetime

from torchctl.api import effective
from torchctl.api.common import RunPolicy
from torchctl.api.effective import EffectiveRunPolicy
from torchctl.api.job import JobStatus
from torchctl.api.queue import QueueSpec
from torchctl.controllers.job.children.workers import is_stopped
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.settings import Restarting

__all__ = ["Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """A job's observed state, and the template and time by which it is judged.

    Args:
        template: What the job runs with; None if it has none yet, or if nobody can read it any more.
        now: The time, aware of its zone.
    """

    observed: Observed
    template: FrozenTemplate | None
    settings: Restarting
    now: datetime

    @property
    def status(self) -> JobStatus:
        """The status that is recorded of the job."""
        return self.observed.job.status

    @property
    def moment(self) -> datetime:
        """`now` as the API server stores it, in whole seconds."""
        return self.now.replace(microsecond=0)

    @property
    def is_elastic(self) -> bool:
        """Whether the job may run with fewer or more workers than it asked for."""
        return self.observed.job.spec.elastic is not None

    @property
    def pausable(self) -> bool:
        """Whether the attempt's Job has not ended, and begins again whole after its Workload of Kueue was inactive.

        A Job makes no pod again of an index that is complete, so that a fixed gang could not meet. Of a Job that grows
        Kueue has two Workloads, and stops for neither alone. Such a Job is ended, and stays so if one of them goes. One
        that is labelled for Kueue, in a queue that does not name it, is ended and made again as without Kueue.
        """
        job, template = self.observed.worker_job, self.template
        if job is None or template is None or not template.gang_scheduler.admits_jobs:
            return False
        if len(self.observed.workloads) != 1 or job.metadata.deletion_timestamp is not None:
            return False
        begun = bool(job.status.completed) and template.elastic is None
        return not begun and not job.status.ends() and not is_stopped(job)

    @property
    def policy(self) -> EffectiveRunPolicy:
        """The job's run policy as it is now, over the queue's as it was frozen."""
        frozen = RunPolicy.model_validate(self.template.queue_run_policy) if self.template else RunPolicy()
        return effective.run_policy(QueueSpec(run_policy=frozen), self.observed.job.spec)
