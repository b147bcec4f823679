"""A job in a cluster in memory, and the verbs of its tests: what people, controllers and nodes do to it."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec
from operated import Operated
from specs import EPOCH, decoded, elastic, job, queue_of

from torchctl.api import names
from torchctl.api.kube import KAI_PODGROUP, POD, PVC, PersistentVolumeClaim
from torchctl.api.kueue import KUEUE_WORKLOAD, KueueWorkload
from torchctl.api.labels import VOLCANO_POD_GROUP
from torchctl.api.volcano import VOLCANO_PODGROUP
from torchctl.controllers.gangs.groups import PodGroup
from torchctl.controllers.job.pods import INDEX_KEY
from torchctl.controllers.job.template.digest import seal
from torchctl.runtime.kinds import Condition, Kind

__all__ = ["EPOCH", "World", "elastic", "job"]


class World(Operated):
    """One job and its surroundings, and what people, controllers and nodes do to them."""

    @classmethod
    def running(cls, text: str, nodes: int = 2, queue: str | None = "image: trainer:1") -> Self:
        """A job whose workers run."""
        w = cls(text, queue)
        w.settle()
        return w.runs(nodes)

    def waits(self) -> float:
        """Lets the time pass until the last plan wants to be made again; the seconds that it took."""
        seconds = self.look_again_s()
        assert seconds is not None
        self.later(seconds)
        return seconds

    def incident_settles(self) -> None:
        """Reconciles until what is lost together has had the time to be seen, and the attempt is over."""
        self.settle()
        self.later(5)
        self.settle()

    def sync_succeeds(self, number: int = 0, message: str = "") -> None:
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
        self.play(f"demo-sync-{number}", phase="Succeeded", containerStatuses=[{"name": "fetch", "state": ended}])

    def sync_serves(self, number: int = 0, message: str = "", *, ready: bool = True) -> None:
        """The sync pod of a served workspace serves, and is ready; nothing where the pod is another."""
        name = f"demo-sync-{number}"
        made = self.objects.get(("Pod", name))
        if made is None or made["spec"]["containers"][0]["name"] != "serve":
            return
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
        self.play(
            name,
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
        self.lacks(*(() if available else (KAI_PODGROUP,)))

    def lacks(self, *kinds: Kind[Any]) -> None:
        """The kinds of PodGroups that the API server does not serve."""
        self.seen = replace(self.seen, absent=frozenset(kinds))

    def may_not_read(self, *kinds: Kind[Any]) -> None:
        """The API server refuses these kinds of PodGroups, so that nobody knows whether they are there."""
        self.seen = replace(self.seen, refused=dict.fromkeys(kinds, "podgroups is forbidden"))

    def volcano(self, available: bool) -> None:
        self.lacks(*(() if available else (VOLCANO_PODGROUP,)))

    def volcano_queue_is(self, state: str | None) -> None:
        """The state of the Volcano Queue that the PodGroup is in; empty: there is none."""
        self.seen = replace(self.seen, queue_state=state)

    def volcano_says(self, phase: str, *conditions: dict[str, Any]) -> None:
        """What Volcano writes on the attempt's PodGroup."""
        group = self.seen.podgroup
        assert group is not None
        body = {"metadata": msgspec.to_builtins(group.metadata), "spec": group.spec}
        self.group_is(VOLCANO_PODGROUP, body | {"status": {"phase": phase, "conditions": [*conditions]}})

    def kueue_says(self, *conditions: dict[str, Any], active: bool = True, **status: Any) -> None:
        """What Kueue has written on the one Workload that it has of the Job."""
        marks = self.seen.workloads[0].metadata.annotations if self.seen.workloads else {}
        self.seen = replace(self.seen, workloads=(self.a_workload(*conditions, active=active, marks=marks, **status),))

    def a_workload(
        self,
        *conditions: dict[str, Any],
        name: str = "job-demo-1a2b3",
        active: bool = True,
        marks: dict[str, str] | None = None,
        **status: Any,
    ) -> KueueWorkload:
        """One that Kueue has made of the attempt's Job."""
        job = self.worker_job.metadata
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid, "controller": True}
        meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "7", "annotations": marks or {}}
        body = {
            "metadata": meta | {"ownerReferences": [owner]},
            "spec": {"active": active},
            "status": {"conditions": [*conditions], **status},
        }
        return decoded(KUEUE_WORKLOAD, body)

    def kueue_admits(self, *conditions: dict[str, Any]) -> None:
        """Kueue has quota for the Job, and lets it go."""
        self.kueue_says({"type": "Admitted", "status": "True", "reason": "Admitted"}, *conditions)
        self._held(False)

    def kueue_evicts(self, reason: str, message: str, **status: Any) -> None:
        """Kueue suspends the Job, whose controller deletes the pods, and then clears its start time."""
        self.kueue_says(
            {"type": "Evicted", "status": "True", "reason": reason, "message": message},
            {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "8 more needed"},
            active=all(one.spec.active for one in self.seen.workloads),
            **status,
        )
        self._held(True)
        for pod in self.seen.pods:
            self.remove("Pod", pod.metadata.name)

    def _held(self, held: bool) -> None:
        job = self.worker_job
        said = Condition("Suspended", str(held), "JobSuspended" if held else "JobResumed", "", self.now)
        others = (one for one in job.status.conditions or () if one.type != "Suspended")
        status = msgspec.structs.replace(job.status, start_time=None if held else self.now, conditions=(*others, said))
        self.worker_job_has(spec={**job.spec, "suspend": held}, status=status)

    def is_in(self, groups: dict[str, PodGroup], *indexes: int) -> None:
        """Workers that wait say that they are in these PodGroups, of which there is one."""
        self.seen = replace(self.seen, groups=groups)
        for index in indexes:
            annotations = {VOLCANO_POD_GROUP: next(iter(groups)), INDEX_KEY: str(index)}
            self.worker(index, "Pending", node="", metadata={"annotations": annotations})

    def says_why(self, message: str) -> None:
        self.seen = replace(self.seen, create_failure=message)

    def warns(self, message: str) -> None:
        """The newest Warning Event about the first late worker."""
        self.seen = replace(self.seen, warning=message)

    def pod_group_says(self, conditions: list[dict[str, Any]]) -> None:
        self.group_is(KAI_PODGROUP, {"metadata": {"name": "pg"}, "status": {"schedulingConditions": conditions}})

    def group_is(self, kind: Kind[Any], body: dict[str, Any]) -> None:
        """The attempt's PodGroup, and what its scheduler has written on it."""
        self.seen = replace(self.seen, podgroup=decoded(kind, body))

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
        """Sets a condition of the workers' Job, as the Job controller does."""
        job = self.worker_job
        condition = {
            "type": type_,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": self.now,
        }
        last = 0 if self.seen.job.spec.elastic else int(job.spec["completions"]) - 1
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

    def succeeds(self) -> None:
        """Every worker that is there ends well, and the Job controller says so."""
        for pod in self.seen.pods:
            self.play(pod.metadata.name, phase="Succeeded")
        self.job_is("Complete")
