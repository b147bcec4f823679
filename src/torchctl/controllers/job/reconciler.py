"""The TorchrunJob reconciler: observes, plans, acts, reports. Every rule is in the modules beside it."""

from dataclasses import replace
from datetime import datetime
from functools import partial

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONTROLLER_REVISION, JOB, POD, PVC, SERVICE, PersistentVolumeClaim
from torchctl.api.kueue import KUEUE_WORKLOAD, KueueWorkload
from torchctl.api.labels import JOB_NAME
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.api.volcano import VOLCANO_PODGROUP, VOLCANO_QUEUE, VolcanoPodGroup, VolcanoQueue
from torchctl.controllers.gangs.groups import GROUP_KINDS
from torchctl.controllers.gangs.volcano import DEFAULT_QUEUE
from torchctl.controllers.indexes import (
    JOBS_BY_CLAIM,
    JOBS_BY_DEPENDENCY,
    JOBS_BY_QUEUE,
    QUEUES_BY_CACHE,
    cache_of,
    claims_of,
    dependencies_of,
    queue_of,
)
from torchctl.controllers.job.act import Actor, Seen
from torchctl.controllers.job.live_reads import LiveReads
from torchctl.controllers.job.observe import BY_JOB, BY_WORKER_JOB, OURS, Observed, by_job, by_worker_job, observe
from torchctl.controllers.job.place_reader import PlaceReader
from torchctl.controllers.job.plan import Plan, Question, Recovery, again_s, plan
from torchctl.controllers.job.status import derive, transitions
from torchctl.controllers.job.status_throttle import StatusThrottle
from torchctl.controllers.job.steps import admission
from torchctl.controllers.job.upstream import jobs_that_wait, jobs_waited_for, upstream_turned
from torchctl.controllers.predicates import state_turned
from torchctl.controllers.queuespec.policy import condition_of
from torchctl.controllers.refusals import may_pass
from torchctl.controllers.report import Reporter
from torchctl.controllers.settings import RETRY_CAP_S, OperatorSettings
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Change
from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import Key, Object, controller_of, key_of
from torchctl.runtime.manager import Manager
from torchctl.runtime.predicate import Predicate, generation_changed
from torchctl.runtime.reconcile import Request, Result

__all__ = ["JobReconciler", "setup"]

GROUPS_BY_QUEUE = "volcano-queue"
"""Index of Volcano's PodGroups by the name of their Queue."""


def setup(manager: Manager, settings: OperatorSettings) -> None:
    """Adds the controller of TorchrunJobs to a manager."""
    cache = manager.cache
    indexes = {JOBS_BY_QUEUE: queue_of, JOBS_BY_CLAIM: claims_of, JOBS_BY_DEPENDENCY: dependencies_of}
    cache.register(TORCHRUN_JOB, indexes=indexes)
    cache.register(TORCHRUN_QUEUE, indexes={QUEUES_BY_CACHE: cache_of})
    cache.register(POD, labels=OURS, indexes={BY_JOB: by_job})
    cache.register(JOB, labels=OURS, indexes={BY_JOB: by_job})
    cache.register(CONTROLLER_REVISION, labels=OURS, indexes={BY_JOB: by_job})
    for kind in GROUP_KINDS:
        cache.register(kind, labels=OURS, indexes={BY_JOB: by_job}, optional=True)
    cache.index(VOLCANO_PODGROUP, GROUPS_BY_QUEUE, queue_of_group)
    cache.register(VOLCANO_QUEUE, optional=True)
    cache.register(KUEUE_WORKLOAD, indexes={BY_WORKER_JOB: by_worker_job}, optional=True)
    reconciler = JobReconciler(manager, settings)
    controller = Controller("torchrunjob", reconciler.reconcile, max_retry_s=RETRY_CAP_S).for_(TORCHRUN_JOB)
    for kind in (CONTROLLER_REVISION, SERVICE, JOB):
        controller.owns(kind, labels=OURS)
    for kind in GROUP_KINDS:
        controller.owns(kind, labels=OURS, optional=True)
    controller.watches(VOLCANO_QUEUE, partial(jobs_in_volcano_queue, cache), predicate=state_turned, optional=True)
    controller.watches(KUEUE_WORKLOAD, partial(job_of_workload, cache), optional=True)
    controller.watches(POD, job_of_child, labels=OURS)
    controller.watches(PVC, partial(jobs_of_claim, cache))
    controller.watches(TORCHRUN_JOB, partial(jobs_that_wait, cache), predicate=upstream_turned)
    controller.watches(TORCHRUN_JOB, jobs_waited_for, predicate=upstream_turned)
    controller.watches(TORCHRUN_QUEUE, partial(jobs_of_queue, cache), predicate=generation_changed | queue_turned)
    manager.add(controller.listens(reconciler.places.follow))


def job_of_child(child: Object) -> tuple[Request, ...]:
    """The job that the child's labels name. A worker's controller is the Job; a kept claim has none."""
    name = child.metadata.labels.get(JOB_NAME)
    return (Key(child.metadata.namespace, name),) if name else ()


def job_of_workload(cache: Cache, workload: KueueWorkload) -> tuple[Request, ...]:
    """The job whose Job Kueue made the Workload for; of Jobs that are not ours the cache knows nothing."""
    owner = controller_of(workload)
    job = cache.get(JOB, Key(workload.metadata.namespace, owner.name)) if owner is not None else None
    return job_of_child(job) if job is not None else ()


def jobs_of_claim(cache: Cache, claim: PersistentVolumeClaim) -> tuple[Request, ...]:
    """Returns the job that owns the claim, the jobs that take their workspace from it, and those of its queues.

    A queue names a claim that keeps what is uploaded for its jobs.
    """
    named = cache.by_index(TORCHRUN_JOB, JOBS_BY_CLAIM, str(key_of(claim)))
    queues = cache.by_index(TORCHRUN_QUEUE, QUEUES_BY_CACHE, str(key_of(claim)))
    theirs = (request for queue in queues for request in jobs_of_queue(cache, queue))
    return (*job_of_child(claim), *(key_of(job) for job in named), *theirs)


def _turned(change: Change[TorchrunQueue]) -> bool:
    if change.old is None or change.new is None:
        return True
    before, after = map(condition_of, (change.old, change.new))
    if before is None or after is None:
        return before is not after
    return (before.reason, before.observed_generation) != (after.reason, after.observed_generation)


queue_turned = Predicate(_turned)
"""The parts of a queue's status that jobs wait for. Its counts change with every job, and matter to no other."""


def queue_of_group(group: VolcanoPodGroup) -> tuple[str, ...]:
    """The index function of `GROUPS_BY_QUEUE`."""
    return (str(group.spec.get("queue") or DEFAULT_QUEUE),)


def jobs_in_volcano_queue(cache: Cache, queue: VolcanoQueue) -> tuple[Request, ...]:
    """Returns the jobs that have a PodGroup in a Volcano Queue."""
    groups = cache.by_index(VOLCANO_PODGROUP, GROUPS_BY_QUEUE, queue.metadata.name)
    return tuple(request for group in groups for request in job_of_child(group))


def jobs_of_queue(cache: Cache, queue: TorchrunQueue) -> tuple[Request, ...]:
    return tuple(key_of(job) for job in cache.by_index(TORCHRUN_JOB, JOBS_BY_QUEUE, str(key_of(queue))))


class JobReconciler:
    """Brings one TorchrunJob a step further each time that something about it changed."""

    def __init__(self, manager: Manager, settings: OperatorSettings) -> None:
        self._manager = manager
        self._settings = settings
        self.places = PlaceReader(manager.client, manager.clock, settings.kueue_place_period_s)
        self._reporter = Reporter(manager.client, manager.events)
        self._throttle = StatusThrottle(settings.job_status_period_s)
        self._live_reads = LiveReads(manager.client)
        self._actor = Actor(manager)

    async def reconcile(self, request: Request) -> Result | None:
        observed = observe(self._manager.cache, request)
        if observed is None:
            self._throttle.forget(request)
            self._live_reads.forget(request)
            self.places.place(request, None)
            return None
        observed = replace(observed, place=self.places.place(request, admission.waiting(observed)))
        now = self._manager.clock.now()
        observed, todo, seen = await self._plan(observed, now)
        refusals = await self._actor.carry_out(observed.job, todo.actions, seen)
        status = derive(observed, todo, refusals, now)
        old, due_s = observed.job.status, again_s(todo, refusals)
        left_s = self._throttle.left_s(request, old, status, self._manager.clock.monotonic())
        soon = may_pass(refusal.reason for refusal in refusals)
        if left_s:
            return Result(requeue_after_s=left_s if due_s is None else min(left_s, due_s), back_off=soon)
        await self._reporter.report(TORCHRUN_JOB, observed.job, status, transitions(old, status))
        return Result(requeue_after_s=due_s, back_off=soon)

    async def _plan(self, observed: Observed, now: datetime) -> tuple[Observed, Plan, Seen]:
        todo = plan(observed, self._settings, now)
        seen, answered = self._actor.look(todo.actions), set[Question]()
        while not isinstance(todo, Recovery) and todo.asks is not None and todo.asks not in answered:
            answered.add(todo.asks)
            observed = await self._live_reads.answered(observed, todo.asks, self._manager.clock.monotonic(), now)
            todo = plan(observed, self._settings, now)
            seen = {**self._actor.look(todo.actions), **seen}
        return observed, todo, seen
