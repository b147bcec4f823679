"""The TorchrunJob reconciler: observes, plans, acts, reports. Every rule is in the modules beside it."""

from datetime import datetime
from functools import partial
from typing import Any

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE, PersistentVolumeClaim
from torchctl.api.labels import APP_MANAGED_BY, JOB_NAME
from torchctl.api.names import FIELD_MANAGER
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.api.queueconditions import QueueCondition
from torchctl.api.words import EventType
from torchctl.controllers.indexes import (
    JOBS_BY_CLAIM,
    JOBS_BY_DEPENDENCY,
    JOBS_BY_QUEUE,
    claims_of,
    dependencies_of,
    queue_of,
)
from torchctl.controllers.job.actions import Child, Halt, Refusal, Removal
from torchctl.controllers.job.live_reads import Asking
from torchctl.controllers.job.observe import BY_JOB, Observed, by_job, observe
from torchctl.controllers.job.plan import REFUSAL_REQUEUE_S, Plan, plan
from torchctl.controllers.job.status import derive, transitions
from torchctl.controllers.job.status_throttle import Lagging
from torchctl.controllers.job.upstream import jobs_that_wait, jobs_waited_for, upstream_turned
from torchctl.controllers.refusals import is_refusal, refusal_reason
from torchctl.controllers.report import Reporter, reference
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.apply import ForeignObject, Found
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Change
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.conditions import find
from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import Key, Kind, Object, key_of
from torchctl.runtime.manager import Manager
from torchctl.runtime.predicate import Predicate, generation_changed
from torchctl.runtime.reconcile import Request, Result

__all__ = ["JobReconciler", "setup"]

OURS = f"{APP_MANAGED_BY}={FIELD_MANAGER}"
"""Label selector of the children: objects of others in the cluster are neither watched nor cached."""


def setup(manager: Manager, settings: OperatorSettings) -> None:
    """Adds the controller of TorchrunJobs to a manager."""
    cache = manager.cache
    indexes = {JOBS_BY_QUEUE: queue_of, JOBS_BY_CLAIM: claims_of, JOBS_BY_DEPENDENCY: dependencies_of}
    cache.register(TORCHRUN_JOB, indexes=indexes)
    cache.register(POD, labels=OURS, indexes={BY_JOB: by_job})
    cache.register(JOB, labels=OURS, indexes={BY_JOB: by_job})
    cache.register(CONTROLLER_REVISION, labels=OURS, indexes={BY_JOB: by_job})
    cache.register(KAI_PODGROUP, labels=OURS, indexes={BY_JOB: by_job}, optional=True)
    controller = Controller(
        "torchrunjob",
        JobReconciler(manager, settings).reconcile,
        max_retry_s=REFUSAL_REQUEUE_S,
    ).for_(TORCHRUN_JOB)
    for kind in (CONTROLLER_REVISION, SERVICE, JOB):
        controller.owns(kind, labels=OURS)
    controller.owns(KAI_PODGROUP, labels=OURS, optional=True)
    controller.watches(POD, job_of_child, labels=OURS)
    controller.watches(PVC, partial(jobs_of_claim, cache))
    controller.watches(TORCHRUN_JOB, partial(jobs_that_wait, cache), predicate=upstream_turned)
    controller.watches(TORCHRUN_JOB, jobs_waited_for, predicate=upstream_turned)
    controller.watches(TORCHRUN_QUEUE, partial(jobs_of_queue, cache), predicate=generation_changed | queue_turned)
    manager.add(controller)


def job_of_child(child: Object) -> tuple[Request, ...]:
    """The job that the child's labels name. A worker's controller is the Job; a kept claim has none."""
    name = child.metadata.labels.get(JOB_NAME)
    return (Key(child.metadata.namespace, name),) if name else ()


def jobs_of_claim(cache: Cache, claim: PersistentVolumeClaim) -> tuple[Request, ...]:
    """The job whose child it is, and the jobs that take their workspace from it."""
    named = cache.by_index(TORCHRUN_JOB, JOBS_BY_CLAIM, str(key_of(claim)))
    return (*job_of_child(claim), *(key_of(job) for job in named))


def _turned(change: Change[TorchrunQueue]) -> bool:
    if change.old is None or change.new is None:
        return True
    before, after = (
        find(queue.status.conditions, QueueCondition.KAI_QUEUE_READY) for queue in (change.old, change.new)
    )
    if before is None or after is None:
        return before is not after
    return (before.reason, before.observed_generation) != (after.reason, after.observed_generation)


queue_turned = Predicate(_turned)
"""What jobs wait for in a queue's status. Its counts change with every job, and concern no other."""


def jobs_of_queue(cache: Cache, queue: TorchrunQueue) -> tuple[Request, ...]:
    return tuple(key_of(job) for job in cache.by_index(TORCHRUN_JOB, JOBS_BY_QUEUE, str(key_of(queue))))


class JobReconciler:
    """Brings one TorchrunJob a step further each time that something about it changed."""

    def __init__(self, manager: Manager, settings: OperatorSettings) -> None:
        self._manager = manager
        self._settings = settings
        self._reporter = Reporter(manager.client, manager.events)
        self._lagging = Lagging(settings.job_status_period_s)
        self._asking = Asking(manager.client)

    async def reconcile(self, request: Request) -> Result | None:
        observed = observe(self._manager.cache, request)
        if observed is None:
            self._lagging.forget(request)
            self._asking.forget(request)
            return None
        now = self._manager.clock.now()
        observed, todo = await self._plan(observed, now)
        refusals = await self._act(observed, todo)
        status = derive(observed, todo, refusals, now)
        old, again_s = observed.job.status, todo.again_s(refusals)
        left_s = self._lagging.left_s(request, old, status, self._manager.clock.monotonic())
        if left_s:
            return Result(requeue_after_s=left_s if again_s is None else min(left_s, again_s))
        await self._reporter.report(TORCHRUN_JOB, observed.job, status, transitions(old, status))
        return Result(requeue_after_s=again_s)

    async def _plan(self, observed: Observed, now: datetime) -> tuple[Observed, Plan]:
        todo = plan(observed, self._settings, now)
        known = await self._asking.completed(observed, todo, self._manager.clock.monotonic(), now)
        return (observed, todo) if known is observed else (known, plan(known, self._settings, now))

    async def _act(self, observed: Observed, todo: Plan) -> tuple[Refusal, ...]:
        stay = await self._clear(observed.job, todo)
        found = await self._manager.applier.look([(child.kind, child.key) for child in todo.children])
        for child, live in zip(todo.children, found, strict=True):
            if not self._is_there(observed.job):
                return ()  # what is made for a job that has left meanwhile would run until somebody clears it away
            refusal = await self._apply(child, live)
            if refusal is not None:
                return (*stay, refusal)
        return stay

    async def _clear(self, job: TorchrunJob, todo: Plan) -> tuple[Refusal, ...]:
        removed = [await self._remove(job, removal) for removal in todo.remove]
        halted = [await self._halt(job, halt) for halt in todo.halt]
        return tuple(filter(None, (*removed, *halted)))

    def _is_there(self, job: TorchrunJob) -> bool:
        """Whether the job is still the one that was observed: its children take time to make."""
        found = self._manager.cache.get(TORCHRUN_JOB, key_of(job))
        return found is not None and found.metadata.uid == job.metadata.uid and not found.metadata.deletion_timestamp

    async def _apply(self, child: Child, live: Found[Any]) -> Refusal | None:
        try:
            await self._manager.applier.apply(child.kind, child.body, child.ours, found=live)
        except (ForeignObject, ApiError) as error:
            if not is_refusal(error):
                raise
            reason, message = refusal_reason(error, f"{child.kind} {child.name}")
            return Refusal(child.kind.kind, child.name, reason, message)
        return None

    async def _remove(self, job: TorchrunJob, removal: Removal) -> Refusal | None:
        key = removal.key
        try:
            await self._manager.client.delete(
                removal.kind,
                key.name,
                namespace=key.namespace,
                uid=removal.uid,
                resource_version=removal.version,
                grace_seconds=0 if removal.force else None,
            )
        except NotFound:
            return None
        except ApiError as error:
            return self._stays(job, removal.kind, key, "deleted", error)
        return None

    async def _halt(self, job: TorchrunJob, halt: Halt) -> Refusal | None:
        key, patch = halt.key, {"metadata": {"uid": halt.uid}, "spec": {"activeDeadlineSeconds": halt.deadline_s}}
        try:
            await self._manager.client.merge_patch(POD, key.name, patch, namespace=key.namespace)
        except NotFound:
            return None
        except ApiError as error:
            return self._stays(job, POD, key, "ended", error)
        return None

    def _stays(self, job: TorchrunJob, kind: Kind[Any], key: Key, what: str, error: ApiError) -> Refusal:
        """An Event and no condition: what stays is of an attempt, of a revision or of a job that is over.

        Raises:
            ApiError: It is no refusal, but a matter of trying again.
        """
        reason, message = refusal_reason(error, f"{kind} {key.name} cannot be {what}")
        self._manager.events.event(reference(TORCHRUN_JOB, job.metadata), EventType.WARNING, reason, message)
        return Refusal(kind.kind, key.name, reason, message, stays=True)
