"""The TorchrunQueue reconciler: reads the cache, carries out the plan, writes the status."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import CONFIG_MAP, KAI_QUEUE, PVC, KaiQueue, PersistentVolumeClaim
from torchctl.api.labels import APP_MANAGED_BY, QUEUE, ROLE, ROLE_RESOURCE
from torchctl.api.names import FIELD_MANAGER, workspace_claim
from torchctl.api.phases import TERMINAL
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.api.volcano import VOLCANO_QUEUE, VolcanoQueue
from torchctl.controllers.finding import Refusal
from torchctl.controllers.indexes import (
    JOBS_BY_QUEUE,
    QUEUES_BY_KAI,
    QUEUES_BY_PARENT,
    QUEUES_BY_VOLCANO,
    kai_of,
    parent_of,
    queue_of,
    volcano_of,
)
from torchctl.controllers.predicates import state_turned
from torchctl.controllers.queue.claims import (
    KAI,
    QUEUE_NAMESPACE,
    VOLCANO,
    Queues,
    SchedulerQueue,
    claim_of,
    claimed_by,
    release,
    scheduler_of,
)
from torchctl.controllers.queue.plan import (
    LOOK_S,
    Growth,
    Observed,
    Plan,
    look_again,
    plan,
)
from torchctl.controllers.queue.resources import Extra, extras, owner_of
from torchctl.controllers.queue.status import derive, transitions
from torchctl.controllers.queuespec.policy import managed_queue
from torchctl.controllers.queuespec.validate import problem_of
from torchctl.controllers.refusals import may_pass, refusal_reason
from torchctl.controllers.report import Reporter
from torchctl.controllers.settings import RETRY_CAP_S, OperatorSettings
from torchctl.runtime.apply import ForeignObject, StillDeleting
from torchctl.runtime.cache.change import Change
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.controller import Controller
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Key, Kind, key_of
from torchctl.runtime.manager import Manager
from torchctl.runtime.predicate import Predicate, generation_changed
from torchctl.runtime.reconcile import Request, Result

__all__ = ["QueueReconciler", "setup"]

OURS = f"{APP_MANAGED_BY}={FIELD_MANAGER}"
"""Label selector of the ConfigMaps that queues make. Other ConfigMaps are neither watched nor cached."""

BY_QUEUE = "torchrun-queue"
"""Index of ConfigMaps by the uid of their TorchrunQueue."""


@dataclass(frozen=True, slots=True)
class Write:
    """A request to the API server that has not been sent yet, and the object that it is about."""

    noun: str
    name: str
    send: Callable[[], Awaitable[Any]]


def setup(manager: Manager, settings: OperatorSettings) -> None:
    """Adds the controller of TorchrunQueues to a manager."""
    manager.cache.register(TORCHRUN_JOB, indexes={JOBS_BY_QUEUE: queue_of})
    by_name = {QUEUES_BY_KAI: kai_of, QUEUES_BY_PARENT: parent_of, QUEUES_BY_VOLCANO: volcano_of}
    manager.cache.register(TORCHRUN_QUEUE, indexes=by_name)
    manager.cache.register(CONFIG_MAP, labels=OURS, indexes={BY_QUEUE: owner_of})
    counted_s = settings.queue_status_period_s
    reconciler = QueueReconciler(manager, settings)
    manager.add(
        Controller("torchrunqueue", reconciler.reconcile, workers=2, max_retry_s=RETRY_CAP_S)
        .for_(TORCHRUN_QUEUE, predicate=generation_changed)
        .owns(CONFIG_MAP, labels=OURS)
        .watches(PVC, queue_of_claim)
        .watches(KAI_QUEUE, reconciler.queues_around, predicate=generation_changed, optional=True)
        .watches(VOLCANO_QUEUE, reconciler.queues_in_volcano, predicate=volcano_queue_turned, optional=True)
        # These are only counted: all changes within that time are one write.
        .watches(KAI_QUEUE, reconciler.queues_in, optional=True, delay_s=counted_s)
        .watches(TORCHRUN_JOB, reconciler.queues_of_job, predicate=counts_otherwise, delay_s=counted_s)
    )


def _counted(job: TorchrunJob) -> tuple[object, ...]:
    return job.spec.job_queue, job.status.phase, job.status.gpus, bool(job.status.queue_revision)


def _counts_otherwise(change: Change[TorchrunJob]) -> bool:
    return change.old is None or change.new is None or _counted(change.old) != _counted(change.new)


counts_otherwise = Predicate(_counts_otherwise)
"""Passes changes of a job that change the counts of its queue."""


def _claimed_otherwise(change: Change[VolcanoQueue]) -> bool:
    return change.old is None or change.new is None or claim_of(change.old.metadata) != claim_of(change.new.metadata)


claim_changed = Predicate(_claimed_otherwise)
"""Passes Volcano Queues that came, went or changed hands: a claim is an annotation, and no new generation."""

volcano_queue_turned = generation_changed | state_turned | claim_changed
"""What matters of a Volcano Queue to the queues that name or claim it; what it counts changes with every pod."""


def queue_of_claim(claim: PersistentVolumeClaim) -> tuple[Request, ...]:
    """Returns the queue that has, or once had, this claim in its spec.resources."""
    labels = claim.metadata.labels
    name = labels.get(QUEUE) if labels.get(ROLE) == ROLE_RESOURCE else None
    return (Key(claim.metadata.namespace, name),) if name else ()


class QueueReconciler:
    """Keeps the scheduler's Queue and the objects of each TorchrunQueue, and writes its status."""

    def __init__(self, manager: Manager, settings: OperatorSettings) -> None:
        self._manager = manager
        self._cache = manager.cache
        self._client = manager.client
        self._settings = settings
        self._coordinated = settings.coordinator is not None
        self._reporter = Reporter(manager.client, manager.events)

    async def reconcile(self, request: Request) -> Result | None:
        queue = self._cache.get(TORCHRUN_QUEUE, request)
        if queue is None:
            return None
        observed, now = self._observe(queue), self._manager.clock.now()
        todo = plan(observed, now)
        if todo.finalizers is None:
            refusals = await self._act(queue, todo)
        else:
            forgotten = set(queue.metadata.finalizers) - set(todo.finalizers)
            if await self._is_left(observed, forgotten):
                return Result(requeue_after_s=LOOK_S)
            refusals = await self._hold(queue, todo.finalizers)
            if not refusals:
                return Result(requeue_after_s=0)
        status = derive(observed, todo, refusals, now)
        await self._reporter.report(TORCHRUN_QUEUE, queue, status, transitions(queue.status, status))
        soon = may_pass(refusal.reason for refusal in refusals)
        return Result(requeue_after_s=look_again(observed, refusals, now), back_off=soon)

    def queues_of_job(self, job: TorchrunJob) -> tuple[Request, ...]:
        """Returns the queue of a job, and the one that made the scheduler's Queue to which that one refers."""
        own = Key(job.metadata.namespace, job.spec.job_queue)
        queue = self._cache.get(TORCHRUN_QUEUE, own)
        if queue is None:
            return (own,)
        kai = (self._cache.get(KAI_QUEUE, Key("", name)) for name in kai_of(queue))
        volcano = (self._cache.get(VOLCANO_QUEUE, Key("", name)) for name in volcano_of(queue))
        found = (request for one in (*kai, *volcano) if one is not None for request in _claimant(one))
        return (own, *(request for request in found if request != own))

    def queues_in(self, kai_queue: KaiQueue) -> tuple[Request, ...]:
        """Returns the TorchrunQueue that claims a KAI Queue, and those that name it as their own."""
        return (*self._by(QUEUES_BY_KAI, kai_queue), *_claimant(kai_queue))

    def queues_in_volcano(self, volcano_queue: VolcanoQueue) -> tuple[Request, ...]:
        """As `queues_in`, of a Volcano Queue."""
        return (*self._by(QUEUES_BY_VOLCANO, volcano_queue), *_claimant(volcano_queue))

    def queues_around(self, kai_queue: KaiQueue) -> tuple[Request, ...]:
        """Returns the queues of `queues_in` and those that name the KAI Queue as their parent.

        Those need to know whether it exists, and its spec.
        """
        return (*self.queues_in(kai_queue), *self._by(QUEUES_BY_PARENT, kai_queue))

    def _by(self, index: str, named: SchedulerQueue) -> tuple[Request, ...]:
        return tuple(map(key_of, self._cache.by_index(TORCHRUN_QUEUE, index, named.metadata.name)))

    def _observe(self, queue: TorchrunQueue) -> Observed:
        key = Key(queue.metadata.namespace, queue.metadata.name)
        jobs = tuple(self._cache.by_index(TORCHRUN_JOB, JOBS_BY_QUEUE, str(key)))
        observed = Observed(
            queue=queue,
            jobs=jobs,
            kai_available=self._cache.informer(KAI_QUEUE).available,
            kai_queues={found.metadata.name: found for found in self._cache.list(KAI_QUEUE)},
            volcano_available=self._cache.informer(VOLCANO_QUEUE).available,
            volcano_queues={found.metadata.name: found for found in self._cache.list(VOLCANO_QUEUE)},
            allowed_parents=self._settings.kai_parent_queues,
            coordinated=self._coordinated,
            objects=self._objects(queue),
            config_maps=self._cache.by_index(CONFIG_MAP, BY_QUEUE, queue.metadata.uid),
            kept_workspaces=sum(map(self._keeps_workspace, jobs)),
        )
        return replace(observed, guests=tuple(self._guests(observed)))

    def _guests(self, observed: Observed) -> Iterator[TorchrunJob]:
        """Yields the jobs of queues that refer to a scheduler's Queue of this one."""
        for found in observed.claimed:
            index = QUEUES_BY_KAI if scheduler_of(found) is KAI else QUEUES_BY_VOLCANO
            others = self._cache.by_index(TORCHRUN_QUEUE, index, found.metadata.name)
            for other in (other for other in others if not managed_queue(other.spec)):
                yield from self._cache.by_index(TORCHRUN_JOB, JOBS_BY_QUEUE, str(key_of(other)))

    def _keeps_workspace(self, job: TorchrunJob) -> bool:
        """Whether a job has ended and its own workspace claim is still there."""
        claim = self._cache.get(PVC, Key(job.metadata.namespace, workspace_claim(job.metadata.name)))
        ended = job.status.phase in TERMINAL
        return ended and claim is not None and controlled_by(job.metadata.uid)(claim.metadata)

    def _objects(self, queue: TorchrunQueue) -> dict[tuple[str, str], Any]:
        """Returns the existing objects under the names that the queue asks for; none if its spec is not accepted."""
        asked = (
            () if problem_of(queue, self._settings.kai_parent_queues, coordinated=self._coordinated) else extras(queue)
        )
        found = {extra.key: self._cache.get(extra.kind, Key(queue.metadata.namespace, extra.name)) for extra in asked}
        return {key: there for key, there in found.items() if there is not None}

    async def _act(self, queue: TorchrunQueue, todo: Plan) -> tuple[Refusal, ...]:
        queues = await _first_refusal(self._writes_to_queues(queue, todo))
        growing = {growth.extra.key: growth for growth in todo.grow}
        objects = [await _first_refusal(self._writes_to(extra, growing.get(extra.key))) for extra in todo.objects]
        pruned = [await _first_refusal((self._deletion(CONFIG_MAP, CONFIG_MAP.kind, found),)) for found in todo.prune]
        return tuple(filter(None, (queues, *objects, *pruned)))

    async def _hold(self, queue: TorchrunQueue, finalizers: tuple[str, ...]) -> tuple[Refusal, ...]:
        write = Write(TORCHRUN_QUEUE.kind, queue.metadata.name, partial(self._set_finalizers, queue, finalizers))
        refusal = await _first_refusal((write,))
        return (refusal,) if refusal is not None else ()

    def _writes_to_queues(self, queue: TorchrunQueue, todo: Plan) -> Iterator[Write]:
        if todo.apply is not None:
            ours, name = claimed_by(queue.metadata.uid), todo.apply["metadata"]["name"]
            scheduler = KAI if todo.apply["apiVersion"] == KAI.kind.api_version else VOLCANO
            apply = partial(self._manager.applier.apply, scheduler.kind, todo.apply, ours)
            yield Write(scheduler.noun, name, apply)
        for found in todo.release:
            scheduler, name = scheduler_of(found), found.metadata.name
            patch = partial(self._client.merge_patch, scheduler.kind, name, release(found))
            yield Write(scheduler.noun, name, patch)
        for found in todo.delete:
            scheduler = scheduler_of(found)
            yield self._deletion(scheduler.kind, scheduler.noun, found)

    def _writes_to(self, extra: Extra, growth: Growth | None) -> Iterator[Write]:
        apply = partial(self._manager.applier.apply, extra.kind, extra.body, extra.ours, once=extra.once)
        yield Write(extra.kind.kind, extra.name, apply)
        if growth is not None:
            namespace = extra.body["metadata"]["namespace"]
            grow = partial(self._client.merge_patch, PVC, extra.name, growth.patch(), namespace=namespace)
            yield Write(PVC.kind, extra.name, grow)

    def _deletion(self, kind: Kind[Any], noun: str, found: Any) -> Write:
        return Write(noun, found.metadata.name, partial(self._delete, kind, found))

    async def _delete(self, kind: Kind[Any], found: Any) -> None:
        meta = found.metadata
        with suppress(NotFound):
            await self._client.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid)

    async def _is_left(self, observed: Observed, forgotten: Collection[str]) -> bool:
        """Asks the API server whether a scheduler's Queue of ours still exists, before its finalizer is removed.

        The cache is not enough: the watch may be forbidden or behind, and without the finalizer the Queue would be
        forgotten. Every known name is asked for: the one in status, the one in the spec, and those in the cache.

        Raises:
            ApiError: The API server cannot tell. The finalizer stays.
        """
        status = observed.queue.status
        for queues, recorded in ((observed.kai, status.kai_queue), (observed.volcano, status.volcano_queue)):
            names = {recorded.name if recorded is not None else "", *_names(queues)} - {""}
            for name in names if queues.scheduler.finalizer in forgotten else ():
                if await self._is_ours(queues, name):
                    return True
        return False

    async def _is_ours(self, queues: Queues, name: str) -> bool:
        try:
            found = await self._client.get(queues.scheduler.kind, name)
        except NotFound:
            return False
        return claim_of(found.metadata) == queues.uid

    async def _set_finalizers(self, queue: TorchrunQueue, finalizers: tuple[str, ...]) -> None:
        """Writes the finalizers to the version that was read, so that no other writer's finalizer is overwritten."""
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": queue.metadata.resource_version, "finalizers": list(finalizers)}
        }
        name, namespace = queue.metadata.name, queue.metadata.namespace
        with suppress(NotFound):  # gone since it was read
            await self._client.merge_patch(TORCHRUN_QUEUE, name, patch, namespace=namespace)


async def _first_refusal(writes: Iterable[Write]) -> Refusal | None:
    """Sends the writes in order, up to the first that is refused; returns that refusal.

    Raises:
        ApiError: The API server could not be asked, or what a write was decided on is no more.
    """
    for write in writes:
        try:
            await write.send()
        except (ForeignObject, StillDeleting, ApiError) as error:
            return Refusal(write.noun, write.name, *refusal_reason(error, f"{write.noun} {write.name}"))
    return None


def _names(queues: Queues) -> tuple[str, ...]:
    return queues.name or "", *(found.metadata.name for found in queues.claimed)


def _claimant(found: SchedulerQueue) -> tuple[Request, ...]:
    """Returns the TorchrunQueue that claims a scheduler's Queue."""
    annotations = found.metadata.annotations
    is_claimed = claim_of(found.metadata) and QUEUE in annotations
    return (Key(annotations.get(QUEUE_NAMESPACE, ""), annotations[QUEUE]),) if is_claimed else ()
