"""Reads the places of jobs in Kueue's queues: one request a LocalQueue and period, however many jobs wait there."""

from collections.abc import Sequence

import structlog

from torchctl.api.kueue import KUEUE_PENDING, PENDING, KueuePendingWorkload, KueueWorkload
from torchctl.controllers.gangs.places import Places
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.clock import Clock
from torchctl.runtime.controller import Enqueue
from torchctl.runtime.kinds import Key
from torchctl.runtime.workqueue import LOW_PRIORITY

__all__ = ["PlaceReader"]

log = structlog.get_logger("torchctl.controllers")


class PlaceReader:
    """Follows the places of the jobs that ask for theirs, and has a pass made for each whose sentence has changed.

    Args:
        period_s: Seconds between two rounds of reads.
    """

    def __init__(self, client: Client, clock: Clock, period_s: float) -> None:
        self._client, self._clock, self._period_s = client, clock, period_s
        self._places = Places()
        self._answers = True

    def place(self, job: Key, workload: KueueWorkload | None) -> str:
        """The place as it is known, for a sentence; see `Places.words`. No request is made."""
        return self._places.words(job, workload)

    async def follow(self, enqueue: Enqueue) -> None:
        """Reads the LocalQueues in which jobs wait, again and again. RBAC: get on localqueues/pendingworkloads.

        A round ends with the first request that fails: a cluster that lacks the API is asked once a period.
        """
        while True:
            await self._clock.sleep(self._period_s)
            try:
                for queue in self._places.queues:
                    self._wake(enqueue, self._places.learn(queue, await self._read(queue)))
            except ApiError as error:
                self._lose(error)

    def _wake(self, enqueue: Enqueue, jobs: Sequence[Key]) -> None:
        self._answers = True
        for job in jobs:
            enqueue(job, priority=LOW_PRIORITY)

    def _lose(self, error: ApiError) -> None:
        self._places.lose()
        if self._answers:
            log.info(
                "Kueue does not tell the places in its queues, so conditions have its words alone", error=str(error)
            )
        self._answers = False

    async def _read(self, queue: Key) -> tuple[KueuePendingWorkload, ...]:
        try:
            return (await self._client.get(KUEUE_PENDING, queue.name, queue.namespace, subresource=PENDING)).items
        except NotFound as error:
            if error.details is None or not error.details.name:
                raise  # it is the API that is not there, and not the LocalQueue
            return ()
