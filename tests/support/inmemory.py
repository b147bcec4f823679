"""Just enough of the API server to carry the children of one job: apply, delete, and the status of pods."""

import re
from dataclasses import replace
from typing import Any

import msgspec
from readings import Readings
from specs import decoded

from torchctl.api import labels
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE, Job, Pod
from torchctl.api.names import JOB_TRACKING
from torchctl.controllers.finding import Refusal
from torchctl.controllers.gangs.groups import GROUP_KINDS
from torchctl.runtime.kinds import Kind

__all__ = ["InMemoryCluster"]


def _trainer_of(status: dict[str, Any]) -> dict[str, Any]:
    """The trainer of a pod of which only the whole is said: its container says the same."""
    if status.get("phase") == "Succeeded":
        return {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    if status.get("phase") != "Running":
        return {}
    ready = any(given["type"] == "Ready" and given["status"] == "True" for given in status.get("conditions", ()))
    return {"ready": ready, "state": {"running": {}}}


class InMemoryCluster(Readings):
    """Takes the children of a job as the API server does, and shows them to the operator."""

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
                live = self._with_others(live, getattr(self.seen, field))
            self.seen = replace(self.seen, **{field: live})
        if kind == CONTROLLER_REVISION and old is None:
            self._look_for_revisions()
        return True

    @staticmethod
    def _with_others(live: Any, known: Any) -> Any:
        """The object with what is not in our intent: its status, and whether somebody has suspended it."""
        others = {"suspend": known.spec["suspend"]} if isinstance(known, Job) and "suspend" in known.spec else {}
        fields = {"spec": {**live.spec, **others}} if others else {}
        return msgspec.structs.replace(live, status=known.status, **fields)

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
        if kind in GROUP_KINDS:
            return "podgroup"
        return {CONTROLLER_REVISION: "revision", JOB: "worker_job"}.get(kind)

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
        single = {JOB.kind: "worker_job", SERVICE.kind: "service", KAI_PODGROUP.kind: "podgroup"}.get(kind)
        current = getattr(self.seen, single) if single else None
        if single is not None and current is not None and current.metadata.name == name:
            gone[single] = None
        if kind == PVC.kind:
            self.seen = replace(self.seen, workspace=None)
        if kind == CONTROLLER_REVISION.kind and name == self.status.queue_revision:
            self.seen = replace(self.seen, revision=None, old_revisions=())
        self.seen = replace(self.seen, **gone)

    def play(self, name: str, **status: Any) -> None:
        """Gives a pod a status (JSON, camelCase); a worker that is not there is created.

        `metadata`, `spec` and `node` are of the pod itself.
        """
        pods = {pod.metadata.name: pod for pod in (*self.seen.sync_pods, *self.seen.pods)}
        meta = dict(status.pop("metadata", {}))
        spec = {"nodeName": status.pop("node", "node-1")} | status.pop("spec", {})
        index = re.search(r"-(\d+)-x$", name)
        base = {
            "name": name,
            "uid": f"uid-of-{name}",
            "annotations": {"batch.kubernetes.io/job-completion-index": index.group(1)} if index else {},
            "labels": {labels.ATTEMPT: str(self.status.attempt)} if index else {},
            "finalizers": [JOB_TRACKING] if index else [],
        }
        known = msgspec.to_builtins(pods[name].metadata) if name in pods else base
        if index and "containerStatuses" not in status and (trainer := _trainer_of(status)):
            status["containerStatuses"] = [{"name": "trainer", **trainer}]
        self.pod(decoded(POD, {"metadata": known | meta, "spec": spec, "status": status}))

    def refuses(self, kind: str) -> None:
        """The API server takes no object of this kind any more."""
        self.refuse = lambda asked, name: Refusal(kind, name, "Refused", "no") if asked == kind else None

    def refuses_nothing(self) -> None:
        self.refuse = lambda kind, name: None
