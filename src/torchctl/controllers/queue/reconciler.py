"""The TorchrunQueue reconciler: reads the cache, carries the plan out, reports."""

from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import KAI_QUEUE, KaiQueue
from torchctl.api.labels import QUEUE
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.controllers.indexes import JOBS_BY_QUEUE, queue_of
from torchctl.controllers.queue.kai import QUEUE_NAMESPACE, claim_of, claimed_by
from torchctl.controllers.queue.plan import KAI_POLL_S, RETRY_S, Observed, Plan, Refusal, look_again, plan
from torchctl.controllers.queue.status import derive, transitions
from torchctl.controllers.refusals import refusal_reason
from torchctl.controllers.report import Reporter
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.apply import ForeignObject
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import Key
from torchctl.runtime.manager import Manager
from torchctl.runtime.predicate import generation_changed
from torchctl.runtime.reconcile import Request, Result

__all__ = ["QueueReconciler", "setup"]


def setup(manager: Manager, settings: OperatorSettings) -> None:
    """Adds the controller of TorchrunQueues to a manager."""
    manager.cache.register(TORCHRUN_JOB, indexes={JOBS_BY_QUEUE: queue_of})
    reconciler = QueueReconciler(manager, settings)
    manager.add(
        Controller("torchrunqueue", reconciler.reconcile, workers=2, max_retry_s=RETRY_S)
        .for_(TORCHRUN_QUEUE, predicate=generation_changed)
        .watches(TORCHRUN_JOB, lambda job: (Key(job.metadata.namespace, job.spec.job_queue),))
        .watches(KAI_QUEUE, reconciler.queues_of_kai_queue, optional=True)
    )


class QueueReconciler:
    """Keeps the KAI Queue of each TorchrunQueue, and says how the queue and its jobs are."""

    def __init__(self, manager: Manager, settings: OperatorSettings) -> None:
        self._manager = manager
        self._cache = manager.cache
        self._client = manager.client
        self._settings = settings
        self._reporter = Reporter(manager.client, manager.events)

    async def reconcile(self, request: Request) -> Result | None:
        queue = self._cache.get(TORCHRUN_QUEUE, request)
        if queue is None:
            return None
        observed = self._observe(queue)
        todo = plan(observed)
        if todo.finalizers is not None:
            if not observed.kai_available and await self._is_left(queue):
                return Result(requeue_after_s=KAI_POLL_S)
            await self._set_finalizers(queue, todo.finalizers)
            return Result(requeue_after_s=0)
        refusal = await self._act(queue, todo)
        status = derive(observed, todo, refusal, self._manager.clock.now())
        await self._reporter.report(TORCHRUN_QUEUE, queue, status, transitions(queue.status, status))
        return Result(requeue_after_s=look_again(observed, refusal))

    def queues_of_kai_queue(self, kai_queue: KaiQueue) -> tuple[Request, ...]:
        """The queue that claims it, and those that name it, as their own or as their parent."""
        name, annotations = kai_queue.metadata.name, kai_queue.metadata.annotations
        named = [
            Key(queue.metadata.namespace, queue.metadata.name)
            for queue in self._cache.list(TORCHRUN_QUEUE)
            if name in (queue.spec.kai_queue, queue.spec.parent_kai_queue)
        ]
        if claim_of(kai_queue.metadata) and QUEUE in annotations:
            named.append(Key(annotations.get(QUEUE_NAMESPACE, ""), annotations[QUEUE]))
        return tuple(named)

    def _observe(self, queue: TorchrunQueue) -> Observed:
        key = Key(queue.metadata.namespace, queue.metadata.name)
        return Observed(
            queue=queue,
            jobs=tuple(self._cache.by_index(TORCHRUN_JOB, JOBS_BY_QUEUE, str(key))),
            kai_available=self._cache.informer(KAI_QUEUE).available,
            kai_queues={found.metadata.name: found for found in self._cache.list(KAI_QUEUE)},
            allowed_parents=self._settings.kai_parent_queues,
        )

    async def _act(self, queue: TorchrunQueue, todo: Plan) -> Refusal | None:
        try:
            if todo.apply is not None:
                await self._manager.applier.apply(KAI_QUEUE, todo.apply, claimed_by(queue.metadata.uid))
            for kai_queue in todo.delete:
                await self._delete(kai_queue)
        except (ForeignObject, ApiError) as error:
            return Refusal(*refusal_reason(error, f"KAI Queue {queue.spec.kai_queue}"))
        return None

    async def _delete(self, kai_queue: KaiQueue) -> None:
        try:
            await self._client.delete(KAI_QUEUE, kai_queue.metadata.name, uid=kai_queue.metadata.uid)
        except NotFound:
            return

    async def _is_left(self, queue: TorchrunQueue) -> bool:
        """Whether a KAI Queue of ours may still be there although none is seen: the watch may only be forbidden.

        Raises:
            ApiError: That cannot be told. The finalizer, which is what remembers the KAI Queue, stays.
        """
        recorded = queue.status.kai_queue.name if queue.status.kai_queue is not None else ""
        for name in {recorded, queue.spec.kai_queue or ""} - {""}:
            try:
                found = await self._client.get(KAI_QUEUE, name)
            except NotFound:
                continue
            if claimed_by(queue.metadata.uid)(found.metadata):
                return True
        return False

    async def _set_finalizers(self, queue: TorchrunQueue, finalizers: tuple[str, ...]) -> None:
        """Guarded by the version that was read: another writer's finalizer is never overwritten."""
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": queue.metadata.resource_version, "finalizers": list(finalizers)}
        }
        await self._client.merge_patch(TORCHRUN_QUEUE, queue.metadata.name, patch, namespace=queue.metadata.namespace)
