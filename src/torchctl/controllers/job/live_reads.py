"""Reads from the API server what a decision needs and the cache does not have, or may have late."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from torchctl.api import names
from torchctl.api.kube import CONTROLLER_REVISION, JOB
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.plan import Question
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import EVENT, Key, Kind, Object, key_of

__all__ = ["LiveReads"]

T = TypeVar("T", bound=Object)

PERIOD_S = 30.0
"""For so long counts what the Job controller said, for an event is a pass and listing Events is dear."""
RECENT = timedelta(minutes=10)
"""An Event that was not repeated for so long tells of what is mended. The Job controller tries again after a minute at
most (pkg/controller/job, MaxJobApiBackOff), and after 25 Events of one Job it sends one in five minutes (client-go,
tools/record, defaultSpamQPS)."""


@dataclass(frozen=True, slots=True)
class _Said:
    """Why the pods of one child Job could not be made, as it was said at a moment; None where nothing was said."""

    uid: str
    at: float
    message: str | None


class LiveReads:
    """Reads from the API server, and remembers for a while why pods were refused. Nothing is lost if it forgets."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said: dict[Key, _Said] = {}

    async def answered(self, observed: Observed, asks: Question, now: float, date: datetime) -> Observed:
        """What was observed, with the answer to what the plan asks.

        RBAC: list on Events, get on Jobs and ControllerRevisions.

        Args:
            now: Seconds on any monotonic scale.
            date: The time, aware of its zone.
        """
        match asks:
            case Question.WHY_NO_PODS:
                return replace(observed, create_failure=await self._why_no_pods(observed, now, date))
            case Question.WORKER_JOB:
                child = names.worker_job(observed.job.metadata.name, observed.job.status.attempt)
                return replace(observed, worker_job=await self._own(JOB, child, observed))
            case Question.REVISION:
                named = observed.job.status.queue_revision
                return replace(observed, revision=await self._own(CONTROLLER_REVISION, named, observed))

    def forget(self, job: Key) -> None:
        """Nobody asks about this job any more."""
        self._said.pop(job, None)

    async def _why_no_pods(self, observed: Observed, now: float, date: datetime) -> str:
        """What the Job controller says when it cannot create pods. It says so in Events, and nowhere else."""
        job, child = observed.job, observed.worker_job
        uid = child.metadata.uid if child is not None else ""
        known = self._said.get(key_of(job))
        if known is None or known.message is None or known.uid != uid or now >= known.at + PERIOD_S:
            known = self._said[key_of(job)] = _Said(uid, now, await self._newest(job.metadata.namespace, uid, date))
        return known.message or ""

    async def _newest(self, namespace: str, uid: str, date: datetime) -> str | None:
        """What was said last; nothing of it where that is long ago."""
        fields = f"involvedObject.kind=Job,involvedObject.uid={uid},reason=FailedCreate"
        events = await self._client.list(EVENT, namespace=namespace, fields=fields)
        newest = max(events, key=lambda event: int(event.metadata.resource_version), default=None)
        if newest is None:
            return None
        last = newest.last_timestamp
        return newest.message if last is None or date - last <= RECENT else ""

    async def _own(self, kind: Kind[T], name: str, observed: Observed) -> T | None:
        """The job's own child as it is now. Who has just begun to lead may have heard of the job and not yet of it."""
        meta = observed.job.metadata
        try:
            found = await self._client.get(kind, name, meta.namespace)
        except NotFound:
            return None
        return found if controlled_by(meta.uid)(found.metadata) else None
