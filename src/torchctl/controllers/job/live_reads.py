"""Reads from the API server what a decision needs and the cache does not have, or may have late."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

import structlog
from msgspec import structs

from torchctl.api import names
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import CONTROLLER_REVISION, JOB, POD
from torchctl.api.labels import JOB_UID
from torchctl.controllers.job import delays
from torchctl.controllers.job.observe import OURS, with_workers
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.plan import Question
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import EVENT, Event, Key, Kind, Object, key_of

__all__ = ["LiveReads"]

T = TypeVar("T", bound=Object)

log = structlog.get_logger("torchctl.controllers")

PERIOD_S = 30.0
"""Seconds for which an Event read live stays in use, and likewise the fact that Events cannot be read. Every change of
a pod is a pass, and listing Events is expensive."""
AGAIN_S = 5.0
"""Seconds until the next look for an Event that was not there, because it may come a moment after its cause."""
RECENT = timedelta(minutes=10)
"""Age at which an Event that was not repeated no longer counts, because its cause is mended. The Job controller tries
again after a minute at most (pkg/controller/job, MaxJobApiBackOff), and after 25 Events of one Job it sends one in
five minutes (client-go, tools/record, defaultSpamQPS)."""


@dataclass(frozen=True, slots=True)
class _Said:
    """The newest Event of a selection, and until when it is not read again; None if there is none, or no answer."""

    fields: str
    until: float
    event: Event | None


class LiveReads:
    """Reads from the API server, and caches Events for a while. Losing that cache does no harm."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said: dict[Key, _Said] = {}

    async def answered(self, observed: Observed, asks: Question, now: float, date: datetime) -> Observed:
        """Returns the observed state with the live answers that the plan asks for.

        Answers to a question that asks why only explain; without one the pass goes on. Answers to the others decide.

        RBAC: list on Events, pods and TorchrunJobs, get on Jobs and ControllerRevisions.

        Args:
            now: Seconds on any monotonic scale.
            date: The time, aware of its zone.

        Raises:
            ApiError: There is no answer to a question that decides.
        """
        match asks:
            case Question.WHY_NO_PODS:
                job = observed.worker_job
                uid = job.metadata.uid if job is not None else ""
                fields = f"involvedObject.kind=Job,involvedObject.uid={uid},reason=FailedCreate"
                event = await self._newest(observed, fields, now, date)
                return replace(observed, create_failure=event.message if event else "")
            case Question.WHY_NOT_UP:
                pod = delays.first_late(observed, date)
                uid = pod.metadata.uid if pod is not None else ""
                # It has a node by now (`has_news`): what a scheduler said before that is over.
                fields = f"involvedObject.kind=Pod,involvedObject.uid={uid},type=Warning,reason!=FailedScheduling"
                event = await self._newest(observed, fields, now, date)
                return replace(observed, warning=f"{event.reason}: {event.message}" if event else "")
            case Question.WORKER_JOB:
                child = names.worker_job(observed.job.metadata.name, observed.job.status.attempt)
                return replace(observed, worker_job=await self._own(JOB, child, observed))
            case Question.REVISION:
                named = observed.job.status.queue_revision
                return replace(observed, revision=await self._own(CONTROLLER_REVISION, named, observed))
            case Question.WORKERS:
                meta = observed.job.metadata
                mine = f"{OURS},{JOB_UID}={meta.uid}"
                return with_workers(observed, await self._client.list(POD, namespace=meta.namespace, labels=mine))
            case Question.JOB:
                return replace(observed, job=await self._itself(observed.job, date))

    def forget(self, job: Key) -> None:
        """Forgets the Events of a job that nobody asks about any more."""
        self._said.pop(job, None)

    async def _newest(self, observed: Observed, fields: str, now: float, date: datetime) -> Event | None:
        """The newest Event that field selectors choose, read once in a while; none if that one is old."""
        job = observed.job
        known = self._said.get(key_of(job))
        if known is None or known.fields != fields or now >= known.until:
            known = self._said[key_of(job)] = await self._read(job.metadata.namespace, fields, now)
        last = known.event.last_seen if known.event else None
        return known.event if last is None or date - last <= RECENT else None

    async def _read(self, namespace: str, fields: str, now: float) -> _Said:
        try:
            # One try, because a pass does not wait for an answer that only explains.
            events = (await self._client.list_page(EVENT, namespace=namespace, fields=fields)).items
        except ApiError as error:
            log.warning(
                "Events cannot be read, so conditions say less", namespace=namespace, error=str(error) or "no answer"
            )
            return _Said(fields, now + PERIOD_S, None)
        newest = max(events, key=lambda event: int(event.metadata.resource_version), default=None)
        return _Said(fields, now + (PERIOD_S if newest else AGAIN_S), newest)

    async def _itself(self, job: TorchrunJob, date: datetime) -> TorchrunJob:
        """The job as it was observed; as one that is being deleted if it is no longer there."""
        meta = job.metadata
        named = f"metadata.name={meta.name}"  # a list, since the right to list is there for the cache
        page = await self._client.list_page(TORCHRUN_JOB, namespace=meta.namespace, fields=named)
        if any(found.metadata.uid == meta.uid and not found.metadata.deletion_timestamp for found in page.items):
            return job
        return structs.replace(job, metadata=structs.replace(meta, deletion_timestamp=date))

    async def _own(self, kind: Kind[T], name: str, observed: Observed) -> T | None:
        """Reads the job's own child live, because a new leader's cache may have the job and not yet the child."""
        meta = observed.job.metadata
        try:
            found = await self._client.get(kind, name, meta.namespace)
        except NotFound:
            return None
        return found if controlled_by(meta.uid)(found.metadata) else None
