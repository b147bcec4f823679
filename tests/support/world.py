"""A cluster in memory: objects as YAML, and just enough of the API server and its controllers to carry a job along."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

import msgspec
import yaml

from torchctl.api import labels, names
from torchctl.api.job import TORCHRUN_JOB, Failure, JobWorkspace, TorchrunJob
from torchctl.api.jobstatus import Incident, JobStatus, Restarts, WorkspaceStatus
from torchctl.api.kube import (
    CONTROLLER_REVISION,
    JOB,
    KAI_PODGROUP,
    POD,
    PVC,
    SERVICE,
    ControllerRevision,
    Job,
    PersistentVolumeClaim,
    Pod,
)
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.controllers.finding import Refusal
from torchctl.controllers.job.actions import Halt
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.plan import Idle, Plan, Steps, plan
from torchctl.controllers.job.status import derive, transitions
from torchctl.controllers.job.template.digest import seal
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import Condition, Kind, Object

SETTINGS = OperatorSettings(image="torchctl:test")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
UID = "0c5f3a52-6f0e-4a53-9f2b-1d1f4b6f7a10"


T = TypeVar("T", bound=Object)

TWO = "{jobQueue: research, numNodes: 2, command: python train.py%s}"
ELASTIC = "{jobQueue: research, numNodes: %d, command: python train.py, elastic: {minNodes: 2, maxNodes: 4}%s}"


def job(more: str = "") -> str:
    """The spec of a job of two workers, in YAML."""
    return TWO % (f", {more}" if more else "")


def elastic(nodes: int = 3, more: str = "") -> str:
    """The spec of a job of two to four workers, in YAML."""
    return ELASTIC % (nodes, f", {more}" if more else "")


def decoded(kind: Kind[T], body: Any) -> T:
    return msgspec.convert(body, kind.type, dec_hook=kind.dec_hook)


def job_of(text: str) -> TorchrunJob:
    """A TorchrunJob from its spec in YAML."""
    meta = {"name": "demo", "namespace": "team", "uid": UID, "generation": 1, "resourceVersion": "1"}
    return decoded(TORCHRUN_JOB, {"metadata": meta, "spec": yaml.safe_load(text)})


def queue_of(text: str) -> TorchrunQueue:
    """A TorchrunQueue from its spec in YAML, as its own reconciler leaves it where all is well."""
    meta = {"name": "research", "namespace": "team", "uid": "queue-uid", "generation": 1}
    ready = {"type": "KaiQueueReady", "status": "True", "reason": "KaiQueueReady", "observedGeneration": 1}
    body = {"metadata": meta, "spec": yaml.safe_load(text) or {}, "status": {"conditions": [ready]}}
    return decoded(TORCHRUN_QUEUE, body)


def _trainer_of(status: dict[str, Any]) -> dict[str, Any]:
    """The trainer of a pod of which only the whole is said: its container says the same."""
    if status.get("phase") == "Succeeded":
        return {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    if status.get("phase") != "Running":
        return {}
    ready = any(given["type"] == "Ready" and given["status"] == "True" for given in status.get("conditions", ()))
    return {"ready": ready, "state": {"running": {}}}


class World:
    """One job and its surroundings; `step()` is one reconcile, whose children are simply there afterwards."""

    def __init__(self, job: str, queue: str | None = "image: trainer:1", settings: OperatorSettings = SETTINGS) -> None:
        self.settings = settings
        self.now = EPOCH
        self.seen = Observed(job=job_of(job), queue=queue_of(queue) if queue is not None else None)
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.events: list[tuple[str, str, str]] = []
        self.log: list[str] = []
        self.refuse: Callable[[str, str], Refusal | None] = lambda kind, name: None
        self.last: Plan = Idle()

    @classmethod
    def running(cls, text: str, nodes: int = 2, queue: str | None = "image: trainer:1") -> Self:
        """A job whose workers run."""
        w = cls(text, queue)
        w.settle()
        return w.runs(nodes)

    # What a test looks at.

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

    def waits(self) -> float:
        """Lets the time pass until the last plan wants to be made again; the seconds that it took."""
        seconds = self.look_again_s()
        assert seconds is not None
        self.later(seconds)
        return seconds

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

    # The operator.

    def step(self) -> bool:
        """One reconcile; whether it changed anything."""
        observed = self.seen
        self.last = plan(observed, self.settings, self.now)
        refusals, changed = [], False
        for child in self.last.actions.children:
            refusal = self.refuse(child.kind.kind, child.name)
            if refusal is not None:
                refusals.append(refusal)
                break
            changed |= self._apply(child.kind, child.body)
        for removal in self.last.actions.remove:
            self.remove(removal.kind.kind, removal.key.name)
            changed = True
        for halt in self.last.actions.halt:
            self._halt(halt)
            changed = True
        status = derive(observed, self.last, tuple(refusals), self.now)
        if status != observed.job.status:
            self.events += transitions(observed.job.status, status)
            changed = True
            self.log.append(status.phase)
        job = msgspec.structs.replace(self.seen.job, status=status)
        if status.attempt != observed.job.status.attempt:
            self._begin_next()
        self.seen = replace(self.seen, job=job)
        if status.queue_revision != observed.job.status.queue_revision:
            self._look_for_revisions()
        return changed

    def _halt(self, halt: Halt) -> None:
        """The pod has a deadline; that it ends is for the test to say."""
        fields: dict[str, Any] = {}
        for field in ("pods", "old_pods", "sync_pods"):
            fields[field] = tuple(
                msgspec.structs.replace(
                    pod, spec=msgspec.structs.replace(pod.spec, active_deadline_seconds=halt.deadline_s)
                )
                if pod.metadata.uid == halt.uid
                else pod
                for pod in getattr(self.seen, field)
            )
        self.seen = replace(self.seen, **fields)

    def _begin_next(self) -> None:
        """What was of the attempt is of an earlier one."""
        seen = self.seen
        self.seen = replace(
            seen,
            worker_job=None,
            pods=(),
            podgroup=None,
            old_jobs=(*seen.old_jobs, *filter(None, (seen.worker_job,))),
            old_pods=(*seen.old_pods, *seen.pods),
            old_groups=(*seen.old_groups, *filter(None, (seen.podgroup,))),
        )

    def settle(self, limit: int = 20) -> None:
        """Reconciles until nothing changes any more; more than `limit` times is a hot loop."""
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError(f"no rest after {limit} reconciles: {self.log}")

    def incident_settles(self) -> None:
        """Reconciles until what is lost together has had the time to be seen, and the attempt is over."""
        self.settle()
        self.later(5)
        self.settle()

    def forget(self) -> None:
        """The status as the API server gives it back: through JSON."""
        raw = msgspec.to_builtins(self.status)
        status = msgspec.convert(raw, type(self.status))
        self.seen = replace(self.seen, job=msgspec.structs.replace(self.seen.job, status=status))

    # The cluster.

    def _apply(self, kind: Kind[Any], body: dict[str, Any]) -> bool:
        name = body["metadata"]["name"]
        old = self.objects.get((kind.kind, name))
        if old is not None and {k: v for k, v in old.items() if k != "status"} == body:
            return False
        self.objects[kind.kind, name] = body | ({"status": old["status"]} if old and "status" in old else {})
        live = decoded(kind, self._live(kind, body))
        field = self._field(kind, name)
        if kind == POD:
            self.pod(live) if old is None else None
        elif kind == JOB and name in {job.metadata.name for job in self.seen.old_jobs}:
            self._old_job(live)
        elif field and (old is None or kind == JOB):
            if old is not None:
                live = msgspec.structs.replace(live, status=getattr(self.seen, field).status)
            self.seen = replace(self.seen, **{field: live})
        if kind == CONTROLLER_REVISION and old is None:
            self._look_for_revisions()
        return True

    def _look_for_revisions(self) -> None:
        """The one that status names, and those that are older than it."""
        bodies = (body for (kind, _), body in self.objects.items() if kind == CONTROLLER_REVISION.kind)
        found = [decoded(CONTROLLER_REVISION, self._live(CONTROLLER_REVISION, body)) for body in bodies]
        named = next((one for one in found if one.metadata.name == self.status.queue_revision), None)
        older = (one for one in found if named is not None and one.revision < named.revision)
        self.seen = replace(self.seen, revision=named, old_revisions=tuple(older))

    def _old_job(self, live: Job) -> None:
        known = tuple(
            msgspec.structs.replace(live, status=job.status) if job.metadata.name == live.metadata.name else job
            for job in self.seen.old_jobs
        )
        self.seen = replace(self.seen, old_jobs=known)

    def _live(self, kind: Kind[Any], body: dict[str, Any]) -> dict[str, Any]:
        meta = body["metadata"] | {
            "uid": f"uid-of-{body['metadata']['name']}",
            "creationTimestamp": self.now,
            "resourceVersion": "7",
        }
        return body | {"metadata": meta}

    @staticmethod
    def _field(kind: Kind[Any], name: str) -> str | None:
        if kind == PVC:
            return "checkpoints" if name.endswith("-checkpoints") else "workspace"
        if kind == SERVICE:
            return None if name.endswith("-workspace") else "service"
        return {CONTROLLER_REVISION: "revision", JOB: "worker_job", KAI_PODGROUP: "podgroup"}.get(kind)

    def pod(self, pod: Pod) -> None:
        """Puts a pod there, in place of one of its name."""
        field = "sync_pods" if re.search(r"-sync-\d+$", pod.metadata.name) else "pods"
        others = [one for one in getattr(self.seen, field) if one.metadata.name != pod.metadata.name]
        pods: dict[str, Any] = {field: (*others, pod)}
        self.seen = replace(self.seen, **pods)

    def remove(self, kind: str, name: str) -> None:
        self.objects.pop((kind, name), None)
        gone: dict[str, Any] = {
            "sync_pods": tuple(pod for pod in self.seen.sync_pods if pod.metadata.name != name),
            "pods": tuple(pod for pod in self.seen.pods if pod.metadata.name != name),
            "old_pods": tuple(pod for pod in self.seen.old_pods if pod.metadata.name != name),
            "old_jobs": tuple(job for job in self.seen.old_jobs if job.metadata.name != name),
            "old_groups": tuple(group for group in self.seen.old_groups if group.metadata.name != name),
            "old_revisions": tuple(one for one in self.seen.old_revisions if one.metadata.name != name),
        }
        current = self.seen.worker_job
        if kind == JOB.kind and current is not None and current.metadata.name == name:
            self.seen = replace(self.seen, worker_job=None)
        if kind == PVC.kind:
            self.seen = replace(self.seen, workspace=None)
        if kind == CONTROLLER_REVISION.kind and name == self.status.queue_revision:
            self.seen = replace(self.seen, revision=None, old_revisions=())
        self.seen = replace(self.seen, **gone)

    def play(self, name: str, **status: Any) -> None:
        """Gives a pod a status (JSON, camelCase); a worker that is not there is created."""
        pods = {pod.metadata.name: pod for pod in (*self.seen.sync_pods, *self.seen.pods)}
        meta = dict(status.pop("metadata", {}))
        node = status.pop("node", "node-1")
        index = re.search(r"-(\d+)-x$", name)
        base = {
            "name": name,
            "uid": f"uid-of-{name}",
            "annotations": {"batch.kubernetes.io/job-completion-index": index.group(1)} if index else {},
            "labels": {labels.ATTEMPT: str(self.status.attempt)} if index else {},
        }
        known = msgspec.to_builtins(pods[name].metadata) if name in pods else base
        if index and "containerStatuses" not in status and (trainer := _trainer_of(status)):
            status["containerStatuses"] = [{"name": "trainer", **trainer}]
        self.pod(decoded(POD, {"metadata": known | meta, "spec": {"nodeName": node}, "status": status}))

    def sync_succeeds(self, number: int = 0, message: str = "") -> None:
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
        self.play(f"demo-sync-{number}", phase="Succeeded", containerStatuses=[{"name": "fetch", "state": ended}])

    def sync_serves(self, number: int = 0, message: str = "", *, ready: bool = True) -> None:
        """The sync pod of a served workspace serves, and is ready; nothing where the pod is another."""
        if not any(kind == "Service" and name == "demo-workspace" for kind, name in self.objects):
            return
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
        self.play(
            f"demo-sync-{number}",
            phase="Running",
            initContainerStatuses=[{"name": "fetch", "state": ended}],
            containerStatuses=[{"name": "serve", "ready": ready, "state": {"running": {}}}],
            conditions=[{"type": "Ready", "status": str(ready)}],
        )

    def has_claim(self, name: str, *modes: str) -> None:
        """A claim of the user's."""
        claim = decoded(PVC, {"metadata": {"name": name}, "spec": {"accessModes": list(modes)}})
        self.seen = replace(self.seen, claims={**self.seen.claims, name: claim})

    def lacks_claim(self, name: str) -> None:
        self.seen = replace(self.seen, claims={**self.seen.claims, name: None})

    def has_cache(self, name: str) -> None:
        """The claim in which the queue keeps what was uploaded."""
        self.seen = replace(self.seen, cache=decoded(PVC, {"metadata": {"name": name}}))

    def has_queue(self, text: str | None) -> None:
        self.seen = replace(self.seen, queue=queue_of(text) if text is not None else None)

    def queue_deleting(self) -> None:
        queue = self.queue
        meta = msgspec.structs.replace(queue.metadata, deletion_timestamp=self.now)
        self.seen = replace(self.seen, queue=msgspec.structs.replace(queue, metadata=meta))

    def queue_says(self, type_: str, reason: str, message: str) -> None:
        """A condition of the queue, as its own reconciler writes it."""
        queue = self.queue
        told = Condition(type_, "False", reason, message, observed_generation=queue.metadata.generation)
        status = msgspec.structs.replace(queue.status, conditions=(told,))
        self.seen = replace(self.seen, queue=msgspec.structs.replace(queue, status=status))

    def job_deleting(self) -> None:
        """The child Job is on its way out."""
        job = self.worker_job
        meta = msgspec.structs.replace(job.metadata, deletion_timestamp=self.now)
        self.worker_job_has(metadata=meta)

    def worker_job_has(self, **fields: Any) -> None:
        """Somebody changed the child Job."""
        self.seen = replace(self.seen, worker_job=msgspec.structs.replace(self.worker_job, **fields))

    def revision_is(self, data: dict[str, Any], name: str = "") -> None:
        """Another one, under the name that its data has or under `name`, and status names it."""
        revision, job = self.revision, self.seen.job
        meta = msgspec.structs.replace(revision.metadata, name=name or names.revision(job.metadata.name, seal(data)))
        status = msgspec.structs.replace(job.status, queue_revision=meta.name)
        body = self.objects.pop(("ControllerRevision", revision.metadata.name))
        self.objects["ControllerRevision", meta.name] = body
        self.seen = replace(
            self.seen,
            job=msgspec.structs.replace(job, status=status),
            revision=msgspec.structs.replace(revision, data=data, metadata=meta),
        )

    def claim_is(self, phase: str) -> None:
        claim = self.seen.workspace
        assert claim is not None
        status = msgspec.structs.replace(claim.status, phase=phase)
        self.seen = replace(self.seen, workspace=msgspec.structs.replace(claim, status=status))

    def leave(self, claim: PersistentVolumeClaim) -> None:
        """A checkpoints claim of an earlier job."""
        self.seen = replace(self.seen, checkpoints=claim)

    def deleting(self) -> None:
        meta = msgspec.structs.replace(self.seen.job.metadata, deletion_timestamp=self.now)
        self.seen = replace(self.seen, job=msgspec.structs.replace(self.seen.job, metadata=meta))

    def edit(self, **fields: Any) -> None:
        job = self.seen.job
        meta = msgspec.structs.replace(job.metadata, generation=job.metadata.generation + 1)
        spec = job.spec.model_copy(update=fields)
        self.seen = replace(self.seen, job=msgspec.structs.replace(job, spec=spec, metadata=meta))

    def kai(self, available: bool) -> None:
        self.seen = replace(self.seen, kai_available=available)

    def says_why(self, message: str) -> None:
        self.seen = replace(self.seen, create_failure=message)

    def warns(self, message: str) -> None:
        """The newest Warning Event about the first late worker."""
        self.seen = replace(self.seen, warning=message)

    def pod_group_says(self, conditions: list[dict[str, Any]]) -> None:
        body = {"metadata": {"name": "pg"}, "status": {"schedulingConditions": conditions}}
        self.seen = replace(self.seen, podgroup=decoded(KAI_PODGROUP, body))

    def sync_runs(self, number: int = 0) -> None:
        """The container fetch starts now."""
        running = {"running": {"startedAt": self.now}}
        self.play(f"demo-sync-{number}", phase="Running", containerStatuses=[{"name": "fetch", "state": running}])

    def sync_fails(self, number: int = 0, message: str = "boom", code: int = 137, ran_s: float = 0) -> None:
        """By default for no reason of the source's."""
        started = self.now - timedelta(seconds=ran_s)
        ended = {"exitCode": code, "reason": "Error", "message": message, "startedAt": started, "finishedAt": self.now}
        ended = {"terminated": ended}
        self.play(f"demo-sync-{number}", phase="Failed", containerStatuses=[{"name": "fetch", "state": ended}])

    def worker(self, index: int, phase: str = "Running", **status: Any) -> None:
        ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
        job = names.worker_job("demo", self.status.attempt)
        self.play(f"{job}-{index}-x", phase=phase, **({"conditions": ready} | status))

    def old_worker(self, name: str, **status: Any) -> None:
        """What has become of a worker of an earlier attempt."""
        known = next(pod for pod in self.seen.old_pods if pod.metadata.name == name)
        meta = msgspec.to_builtins(known.metadata) | status.pop("metadata", {})
        spec, others = msgspec.to_builtins(known.spec), [pod for pod in self.seen.old_pods if pod is not known]
        pod = decoded(POD, {"metadata": meta, "spec": spec, "status": status})
        self.seen = replace(self.seen, old_pods=(*others, pod))

    def worker_fails(self, index: int, code: int = 1, message: str = "", after_s: float = 10, **more: Any) -> None:
        at = EPOCH + timedelta(seconds=after_s)
        ended = {"exitCode": code, "reason": "Error", "message": message, "finishedAt": at}
        state = [{"name": "trainer", "state": {"terminated": ended}}]
        self.worker(index, "Failed", containerStatuses=state, **more)

    def job_is(self, type_: str, reason: str = "", message: str = "") -> None:
        """The Job controller's verdict."""
        job = self.worker_job
        condition = {
            "type": type_,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": self.now,
        }
        last = 0 if "successPolicy" in job.spec else int(job.spec["completions"]) - 1
        done = {"completionTime": self.now, "completedIndexes": f"0-{last}"} if type_ == "Complete" else {}
        status = msgspec.convert({"conditions": [condition], **done}, type(job.status))
        self.worker_job_has(status=status)

    def runs(self, nodes: int = 2) -> Self:
        """Every worker runs, and the job with them."""
        for index in range(nodes):
            self.worker(index)
        self.settle()
        assert self.phase == "Running"
        return self

    def told(self) -> dict[str, Any]:
        """The metadata of a pod that is told to stop now."""
        return {"deletionTimestamp": self.now + timedelta(seconds=30), "deletionGracePeriodSeconds": 30}

    def told_to_stop(self, *indexes: int, **status: Any) -> None:
        """Workers that run are told to stop."""
        for index in indexes:
            self.worker(index, metadata=self.told(), **status)

    def workers_succeed(self, nodes: int = 2) -> None:
        for index in range(nodes):
            self.worker(index, "Succeeded")

    def worker_exits(self, index: int, *, at: datetime | None = None, **more: Any) -> None:
        """The trainer exits 0 and says when: now, unless told otherwise."""
        ended = {"exitCode": 0, "finishedAt": at or self.now}
        self.worker(index, "Succeeded", containerStatuses=[{"name": "trainer", "state": {"terminated": ended}}], **more)

    def pod_goes(self, *indexes: int) -> None:
        """Pods of the first attempt are gone."""
        for index in indexes:
            self.remove("Pod", f"demo-{index}-x")

    def old_pods_go(self, attempt: int = 0) -> None:
        """The pods of earlier attempts are gone, and a later attempt than this one is the next."""
        self.remove_old_pods()
        self.settle()
        assert self.attempt > attempt

    def remove_old_pods(self, phase: str = "") -> None:
        """The pods of earlier attempts are gone: those of a phase, or all."""
        for pod in self.seen.old_pods:
            if phase in ("", pod.status.phase):
                self.remove("Pod", pod.metadata.name)

    def template_goes(self, queue: str | None = "image: trainer:2") -> None:
        """Somebody deletes the template, and the queue is another one by now."""
        self.has_queue(queue)
        self.remove("ControllerRevision", self.status.queue_revision)

    def refuses(self, kind: str) -> None:
        """The API server takes no object of this kind any more."""
        self.refuse = lambda asked, name: Refusal(kind, name, "Refused", "no") if asked == kind else None

    def refuses_nothing(self) -> None:
        self.refuse = lambda kind, name: None

    def succeeds(self) -> None:
        """Every worker that is there ends well, and the Job controller says so."""
        for pod in self.seen.pods:
            self.play(pod.metadata.name, phase="Succeeded")
        self.job_is("Complete")

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
