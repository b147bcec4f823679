"""A job and its surroundings in memory, and what a test reads of them."""

from collections.abc import Callable
from typing import Any

from specs import EPOCH, job_of, queue_of

from torchctl.api.job import Failure, JobWorkspace
from torchctl.api.jobstatus import Incident, JobStatus, Restarts, WorkspaceStatus
from torchctl.api.kube import ControllerRevision, Job
from torchctl.api.queue import TorchrunQueue
from torchctl.controllers.finding import Refusal
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.plan import Idle, Plan, Steps
from torchctl.controllers.settings import OperatorSettings

__all__ = ["SETTINGS", "Readings"]

SETTINGS = OperatorSettings(image="torchctl:test")


class Readings:
    """One job, its surroundings and the operator's last plan."""

    def __init__(self, job: str, queue: str | None = "image: trainer:1", settings: OperatorSettings = SETTINGS) -> None:
        self.settings = settings
        self.now = EPOCH
        self.seen = Observed(job=job_of(job), queue=queue_of(queue) if queue is not None else None)
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.events: list[tuple[str, str, str]] = []
        self.log: list[str] = []
        self.refuse: Callable[[str, str], Refusal | None] = lambda kind, name: None
        self.last: Plan = Idle()

    @property
    def status(self) -> JobStatus:
        return self.seen.job.status

    @property
    def phase(self) -> str:
        return self.status.phase

    @property
    def attempt(self) -> int:
        return self.status.attempt

    @property
    def restarts(self) -> Restarts:
        return self.status.restarts

    @property
    def failure(self) -> Failure:
        """The recorded failure; there has to be one."""
        failure = self.status.failure
        assert failure is not None
        return failure

    @property
    def incident(self) -> Incident:
        """The open incident; there has to be one."""
        incident = self.status.incident
        assert incident is not None
        return incident

    @property
    def workspace(self) -> WorkspaceStatus:
        """What status says of the workspace; there has to be one."""
        workspace = self.status.workspace
        assert workspace is not None
        return workspace

    @property
    def source(self) -> JobWorkspace:
        """What the job asks for as its workspace; there has to be one."""
        source = self.seen.job.spec.volumes.workspace
        assert source is not None
        return source

    @property
    def nodes(self) -> int:
        """The number of nodes that the job asks for; there has to be one."""
        nodes = self.seen.job.spec.num_nodes
        assert nodes is not None
        return nodes

    @property
    def revision(self) -> ControllerRevision:
        """The revision that status names; there has to be one."""
        revision = self.seen.revision
        assert revision is not None
        return revision

    @property
    def queue(self) -> TorchrunQueue:
        """The job's queue; there has to be one."""
        queue = self.seen.queue
        assert queue is not None
        return queue

    @property
    def halted(self) -> list[str]:
        """Names of the pods that have a deadline, those of earlier attempts last."""
        pods = (*self.seen.pods, *self.seen.old_pods)
        return [pod.metadata.name for pod in pods if pod.spec.active_deadline_seconds]

    @property
    def removals(self) -> list[tuple[str, str, bool]]:
        """Kind and name of every object that the last plan removes, and whether by force."""
        return [(removal.kind.kind, removal.key.name, removal.force) for removal in self.last.actions.remove]

    @property
    def forced(self) -> list[str]:
        """Names of the objects that the last plan deletes by force."""
        return [name for _, name, force in self.removals if force]

    @property
    def steps(self) -> Steps:
        """The last plan, if the job goes on."""
        assert isinstance(self.last, Steps)
        return self.last

    def look_again_s(self) -> float | None:
        """Seconds until the last plan wants to be made again."""
        return self.last.actions.look_again_s

    @property
    def worker_job(self) -> Job:
        """The Job of the attempt; there has to be one."""
        job = self.seen.worker_job
        assert job is not None
        return job

    def has(self, kind: str, name: str) -> bool:
        return (kind, name) in self.objects

    def stopped(self, name: str = "demo") -> bool:
        """Whether the operator has ended the Job, by a deadline that has passed."""
        return self.spec("Job", name).get("activeDeadlineSeconds") == 1

    def trainer(self, name: str = "demo") -> dict[str, Any]:
        """The first container of a Job's template."""
        container: dict[str, Any] = self.spec("Job", name)["template"]["spec"]["containers"][0]
        return container

    def condition(self, type_: str) -> tuple[str, str, str]:
        found = next(c for c in self.status.conditions if c.type == type_)
        return found.status, found.reason, found.message

    def reason(self, type_: str) -> str:
        return self.condition(type_)[1]

    def message(self, type_: str) -> str:
        return self.condition(type_)[2]

    def spec(self, kind: str, name: str) -> dict[str, Any]:
        spec: dict[str, Any] = self.objects[kind, name]["spec"]
        return spec
