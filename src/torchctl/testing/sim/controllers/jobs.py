"""The Job controller at work: it looks at a Job, and does what `jobs.core` decides."""

from datetime import datetime
from typing import Any

from torchctl.api.kube import JOB, POD
from torchctl.api.names import JOB_TRACKING
from torchctl.runtime.kinds import Key
from torchctl.testing.fake.grace import TIME
from torchctl.testing.fake.objects import Changed, key_of
from torchctl.testing.sim.component import Component
from torchctl.testing.sim.jobs.core import decide, is_finished
from torchctl.testing.sim.jobs.look import Backoff, Look, Todo
from torchctl.testing.sim.jobs.pods import pod_of, seen
from torchctl.testing.sim.world import World

__all__ = ["JobController"]

Json = dict[str, Any]


class JobController(Component):
    """Creates, counts and deletes the pods of Jobs, and deletes Jobs whose TTL is over."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "job-controller", 0.02, 1.2)
        self._backoffs: dict[str, Backoff] = {}

    def on_change(self, changed: Changed) -> None:
        meta = changed.new["metadata"]
        if changed.served.kind == JOB:
            self.wake(key_of(changed.new))
            if changed.type == "DELETED":
                for served, pod in self.world.objects.dependents(meta["uid"]):
                    if served.kind == POD:
                        self.wake(("orphan", pod["metadata"]["uid"]))
        elif changed.served.kind == POD:
            for owner in meta.get("ownerReferences", ()):
                if owner["kind"] == JOB.kind and owner.get("controller"):
                    self.wake(Key(meta["namespace"], owner["name"]))
            if JOB_TRACKING in meta.get("finalizers", ()):
                self.wake(("orphan", meta["uid"]))

    def look(self, key: Any) -> None:
        if key[0] == "orphan":
            self._free_orphan(key[1])
            return
        job = self.world.find(JOB, key)
        if job is None:
            return
        if is_finished(job):
            self._backoffs.pop(job["metadata"]["uid"], None)
            self._expire(key, job)
        else:
            self._sync(key, job)

    def _sync(self, key: Key, job: Json) -> None:
        uid = job["metadata"]["uid"]
        bodies = [body for served, body in self.world.objects.dependents(uid) if served.kind == POD]
        started = job.get("status", {}).get("startTime")
        todo = decide(
            Look(
                job=job,
                pods=[seen(body) for body in bodies],
                backoff=self._backoffs.get(uid, Backoff()),
                now=self.world.now,
                now_s=self.world.now_s,
                started_s=_seconds(started) if started else None,
            )
        )
        self._backoffs[uid] = todo.backoff
        self._carry_out(key, job, todo)

    def _carry_out(self, key: Key, job: Json, todo: Todo) -> None:
        for name in todo.forget:
            self._release(Key(key.namespace, name))
        for name in todo.delete:
            self.world.delete(POD, Key(key.namespace, name))
        for index in todo.create:
            self.world.create(POD, key.namespace, pod_of(job, index))
        if todo.before is not None:
            self.world.report(JOB, key, todo.before)
        for name in todo.release:
            self._release(Key(key.namespace, name))
        if todo.after is not None:
            self.world.report(JOB, key, todo.after)
        if todo.again_s is not None:
            self.wake(key, todo.again_s + 0.01)

    def _release(self, key: Key) -> None:
        if self.world.find(POD, key) is not None:
            self.world.change(POD, key, _released)

    def _free_orphan(self, uid: str) -> None:
        """Takes the finalizer from a pod whose Job is gone, or has ended."""
        found = self.world.objects.by_uid(uid)
        if found is None:
            return
        owners = found[1]["metadata"].get("ownerReferences", ())
        owner = next((one for one in owners if one["kind"] == JOB.kind and one.get("controller")), None)
        job = self.world.objects.by_uid(owner["uid"]) if owner is not None else None
        if job is None or is_finished(job[1]):
            self._release(key_of(found[1]))

    def _expire(self, key: Key, job: Json) -> None:
        for served, body in self.world.objects.dependents(job["metadata"]["uid"]):
            if served.kind == POD and JOB_TRACKING in body["metadata"].get("finalizers", ()):
                self.wake(("orphan", body["metadata"]["uid"]))
        ttl_s = job["spec"].get("ttlSecondsAfterFinished")
        if ttl_s is None or "deletionTimestamp" in job["metadata"]:
            return
        ended = next(one for one in job["status"]["conditions"] if one["type"] in ("Complete", "Failed"))
        left_s = _seconds(ended["lastTransitionTime"]) + ttl_s - self.world.now_s
        if left_s > 0:
            self.wake(key, left_s)
        else:
            uid = job["metadata"]["uid"]
            self.world.delete(JOB, key, propagationPolicy="Foreground", preconditions={"uid": uid})


def _released(pod: Json) -> Json:
    kept = [name for name in pod["metadata"].get("finalizers", ()) if name != JOB_TRACKING]
    return {**pod, "metadata": {**pod["metadata"], "finalizers": kept}}


def _seconds(time: str) -> float:
    return datetime.strptime(time + "+0000", TIME + "%z").timestamp()
