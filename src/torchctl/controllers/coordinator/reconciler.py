"""The coordinator's reconciler: reads the cluster, decides, writes status.admission. Every rule is beside it.

There is one key, the cluster: each decision is about all jobs.
"""

import asyncio
from dataclasses import replace
from functools import partial

import msgspec
import structlog

from torchctl.api.capacity import (
    BOUND,
    BOUND_POD,
    LIMIT_RANGE,
    NODE,
    PRIORITY_CLASS,
    RESOURCE_QUOTA,
    RUNTIME_CLASS,
)
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.jobstatus import Admission
from torchctl.api.kube import CONTROLLER_REVISION
from torchctl.api.labels import APP_MANAGED_BY
from torchctl.api.names import FIELD_MANAGER
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.coordinator.deciding import Decided, Deciding
from torchctl.controllers.coordinator.metrics import CoordinatorMetrics
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.refused import RefusedRecords
from torchctl.controllers.ownership import apply_status
from torchctl.controllers.refusals import is_refusal
from torchctl.controllers.settings import RETRY_CAP_S, CoordinatorSettings
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.errors import ApiError, Timeout
from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import Key, Object, key_of
from torchctl.runtime.manager import Manager
from torchctl.runtime.reconcile import Request, Result

__all__ = ["MANAGER", "Coordinator", "setup"]

log = structlog.get_logger("torchctl.controllers")

MANAGER = f"{FIELD_MANAGER}-coordinator"
"""The field manager of status.admission."""

CLUSTER = Key("", "cluster")
OURS = f"{APP_MANAGED_BY}={FIELD_MANAGER}"


def setup(manager: Manager, settings: CoordinatorSettings) -> None:
    """Adds the coordinator to a manager."""
    period_s = settings.period_s
    reconcile = Coordinator(manager, settings).reconcile
    # A record that is refused for ever must not make the decisions about all other jobs rare.
    controller = Controller("coordinator", reconcile, workers=1, max_retry_s=RETRY_CAP_S)
    controller.watches(TORCHRUN_JOB, everything, delay_s=period_s)
    for kind in (TORCHRUN_QUEUE, NODE, RESOURCE_QUOTA, PRIORITY_CLASS, LIMIT_RANGE, RUNTIME_CLASS):
        controller.watches(kind, everything, delay_s=period_s)
    controller.watches(BOUND_POD, everything, fields=BOUND, delay_s=period_s)
    # A job may be seen before its template, and nothing else may ever happen after that.
    controller.watches(CONTROLLER_REVISION, everything, labels=OURS, delay_s=period_s)
    manager.add(controller)


def everything(_: Object) -> tuple[Request, ...]:
    return (CLUSTER,)


def observe(cache: Cache) -> Observed:
    """Reads the cluster from the cache."""
    jobs = tuple(cache.list(TORCHRUN_JOB))
    names = {Key(job.metadata.namespace, job.status.queue_revision) for job in jobs if job.status.queue_revision}
    revisions = ((name, cache.get(CONTROLLER_REVISION, name)) for name in names)
    return Observed(
        jobs=jobs,
        templates={name: revision.data for name, revision in revisions if revision is not None},
        queues=tuple(cache.list(TORCHRUN_QUEUE)),
        nodes=tuple(cache.list(NODE)),
        pods=tuple(cache.list(BOUND_POD)),
        quotas=tuple(cache.list(RESOURCE_QUOTA)),
        priorities=tuple(cache.list(PRIORITY_CLASS)),
        limit_ranges=tuple(cache.list(LIMIT_RANGE)),
        runtimes=tuple(cache.list(RUNTIME_CLASS)),
    )


class Coordinator:
    """Lets jobs in, and tells those that wait why."""

    def __init__(self, manager: Manager, settings: CoordinatorSettings) -> None:
        self._manager, self._client, self._settings = manager, manager.client, settings
        self._deciding = Deciding(settings)
        self._metrics = CoordinatorMetrics(manager.metrics.registry)
        self._refused = RefusedRecords(settings.pause_s)
        self._spoke_s = float("-inf")
        """When places and estimates were written last; that they are written a little more often does no harm."""

    async def reconcile(self, _: Request) -> Result | None:
        at_s = self._manager.clock.monotonic()
        words = at_s - self._spoke_s >= self._settings.word_period_s
        outcome = await self._decide(at_s, words=words)
        queues = {given.key: given.queue for given in outcome.decision.let_in}
        refused: list[Exception] = []
        for job, record in outcome.records:
            try:
                await self._write(job, record)
            except ApiError as error:
                if isinstance(error, Timeout) or not is_refusal(error):
                    raise  # it may be the API server that does not answer: the others would take as long
                refused.append(error)  # of this job alone, or of its namespace: the others go on
                self._refused.refuse(job, at_s)
            else:
                self._refused.accept(job)
                self._metrics.wrote(str(key_of(job)), queues, outcome.losses)
        self._spoke_s = at_s if words else self._spoke_s
        if refused:
            raise ExceptionGroup("records were refused", refused)
        again_s = self._settings.period_s if outcome.decision.more else self._settings.word_period_s
        due_s = (again_s if outcome.pending or outcome.decision.more else None, self._refused.look_again_s(at_s))
        return Result(requeue_after_s=min((one_s for one_s in due_s if one_s is not None), default=None))

    async def _decide(self, at_s: float, *, words: bool) -> Decided:
        """Decides in a thread, because with many jobs that takes longer than the event loop may stand still."""
        observed, now, clock = observe(self._manager.cache), self._manager.clock.now(), self._manager.clock
        observed = replace(observed, jobs=self._refused.without(observed.jobs, at_s))
        began_s = clock.monotonic()
        decide = partial(self._deciding.decide, observed, now, words=words)
        outcome = await asyncio.get_running_loop().run_in_executor(None, decide)
        self._metrics.decision_seconds.observe(clock.monotonic() - began_s)
        self._metrics.show(outcome.standing)
        for gang in outcome.newly_unreadable:
            log.warning("the template of a job cannot be read", job=gang.key, error=gang.error, holds_place=gang.holds)
        return outcome

    async def _write(self, job: TorchrunJob, record: Admission) -> None:
        """Applies a record to the version of the job that was decided on.

        Raises:
            Conflict: The job has changed since. The decision is made again.
            ApiError: The API server, or a webhook, refuses it.
        """
        key = key_of(job)
        body = {
            "apiVersion": TORCHRUN_JOB.api_version,
            "kind": TORCHRUN_JOB.kind,
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "uid": job.metadata.uid,
                "resourceVersion": job.metadata.resource_version,
            },
            "status": {"admission": msgspec.to_builtins(record)},
        }
        await apply_status(self._client, TORCHRUN_JOB, body, lambda field: field == "admission", field_manager=MANAGER)
