"""Records Kubernetes Events in the background, which `kubectl describe` shows.

Needs RBAC for core `events` in every namespace: create, patch.
"""

import socket
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime

import anyio
import structlog

from torchctl.runtime.cancellation import cancelled_only_if_asked
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import (
    AlreadyExists,
    ApiError,
    NotFound,
    NotLeader,
    Timeout,
    TooManyRequests,
    Unavailable,
)
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.eventseries import EventSeries, Occurrence, Series
from torchctl.runtime.kinds import EVENT, ObjectReference
from torchctl.runtime.metrics import Metrics

__all__ = ["EventRecorder"]

QUEUE = 1000
RETRY_AFTER_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Waits between the attempts to write an Event while the API server is away."""

FLUSH_S = 2.0
"""Seconds for which queued Events are still written when the recorder stops."""

log = structlog.get_logger("torchctl.events")


class EventRecorder:
    """Queues Events at once and writes them in the background. It never blocks or fails its caller."""

    def __init__(
        self,
        client: Client,
        component: str = "torchctl",
        clock: Clock | None = None,
        *,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._component = component
        self._instance = socket.gethostname()
        self._clock = clock if clock is not None else SystemClock()
        metrics = metrics if metrics is not None else Metrics(process=False)
        self._written = metrics.events_written_total
        self._dropped = metrics.events_dropped_total
        self._series = EventSeries()
        self._queue: deque[Series] = deque()
        self._more = anyio.Event()
        self._unanswered = ""

    def __repr__(self) -> str:
        return f"<EventRecorder {len(self._queue)} queued>"

    def event(self, regarding: ObjectReference, type_: str, reason: str, message: str) -> None:
        """Records that something happened to an object. Never blocks and never raises.

        Args:
            type_: `Normal` or `Warning`.
            reason: One CamelCase word for machines.
            message: A sentence for people, at most 1024 characters.

        What is no Unicode becomes `?`.
        """
        type_, reason, message = (text.encode(errors="replace").decode() for text in (type_, reason, message))
        if len(self._queue) >= QUEUE:
            self._dropped.labels("queue_full").inc()
            return
        occurrence = Occurrence(regarding, type_, reason, message, self._clock.now())
        series = self._series.observe(occurrence, self._clock.monotonic())
        if series is None:
            self._dropped.labels("spam").inc()
            return
        self._queue.append(series)
        self._more.set()

    async def run(self) -> None:
        """Writes Events until cancelled, then spends at most two seconds on those still queued."""
        try:
            while True:
                await self._flush()
                self._more = anyio.Event()
                await self._more.wait()
        finally:
            with anyio.move_on_after(FLUSH_S, shield=True):
                await self._flush()

    async def _flush(self) -> None:
        while self._queue:
            await self._record(self._queue[0])
            self._queue.popleft()  # only after the write: one that a cancellation cuts off is written again at the end

    async def _record(self, series: Series) -> None:
        for wait_s in (*RETRY_AFTER_S, None):
            try:
                with cancelled_only_if_asked():
                    await self._write(series)
            except (Unavailable, Timeout, TooManyRequests) as error:
                if wait_s is None:
                    self._drop("failed", series, error)
                    return
                await self._clock.sleep(wait_s)
            except (ApiError, NotLeader) as error:
                self._drop("refused", series, error)
                return
            except Exception as error:  # a defect here must not end the process
                log.exception("an event could not be written")
                self._drop("failed", series, error)
                return
            else:
                self._written.inc()
                return

    def _drop(self, reason: str, series: Series, error: Exception) -> None:
        self._dropped.labels(reason).inc()
        log.debug("dropped an event", event_name=series.name, event_reason=series.reason, error=str(error))

    async def _write(self, series: Series) -> None:
        namespace = series.regarding.namespace or "default"
        if series.count > 1:
            try:
                await self._update(series, namespace)
            except NotFound:  # the Event has expired
                self._series.resume(series, 1)
            else:
                return
        again, self._unanswered = self._unanswered == series.name, series.name
        try:
            await self._client.create(EVENT, self._body(series, namespace), namespace)
        except AlreadyExists:
            if not again:  # then the earlier process made it, not our own first attempt
                await self._continue(series, namespace)
        self._unanswered = ""

    async def _continue(self, series: Series, namespace: str) -> None:
        # The answer to a patch without the count contains the count, and a patch needs no right to read Events.
        patch = {"lastTimestamp": _seconds(series.last_at)}
        existing = await self._client.merge_patch(EVENT, series.name, patch, namespace=namespace)
        series = replace(series, count=existing.count + 1)
        await self._update(series, namespace)
        self._series.resume(series, series.count)

    async def _update(self, series: Series, namespace: str) -> None:
        patch = {"count": series.count, "lastTimestamp": _seconds(series.last_at), "message": series.message}
        await self._client.merge_patch(EVENT, series.name, patch, namespace=namespace)

    def _body(self, series: Series, namespace: str) -> dict[str, object]:
        ref = series.regarding
        involved = {"apiVersion": ref.api_version, "kind": ref.kind, "namespace": ref.namespace}
        involved |= {"name": ref.name, "uid": ref.uid}
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": series.name, "namespace": namespace},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "type": series.type,
            "reason": series.reason,
            "message": series.message,
            "count": 1,
            "firstTimestamp": _seconds(series.last_at),
            "lastTimestamp": _seconds(series.last_at),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def _seconds(at: datetime) -> str:
    """metav1.Time: RFC 3339 in whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
