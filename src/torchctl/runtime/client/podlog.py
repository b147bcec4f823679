"""The log of one container as it is written, over cuts of the connection. RBAC: `get` on pods/log."""

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, Timeout
from torchctl.runtime.client.exchange import ByteStream
from torchctl.runtime.client.loglines import Cursor, LogLine, Splitter
from torchctl.runtime.client.requests import pod_log
from torchctl.runtime.client.retry import RetryPolicy
from torchctl.runtime.clock import Clock, SystemClock

__all__ = ["PodLog"]

IDLE_S = 300.0
"""Seconds of silence after which the log is asked for again: the connection may have ended without a word."""

OUTAGE_S = 300.0
"""Seconds for which the log of a running container may be out of reach before it is given up."""

PAUSE_S = 0.2
"""Seconds between the end of an answer and the next request, doubled up to `MAX_PAUSE_S` while nothing new comes.

The end of an answer arrives a moment before the news that the container has ended.
"""
MAX_PAUSE_S = 5.0


class PodLog:
    """One container's log. Whoever reads it sets the pace: at most one answer's buffer is held.

    Args:
        client: Reads the log.
        pod: Name of the pod.
        namespace: Its namespace.
        container: Name of the container; empty for the only one.
        previous: The log of the container's last instance before this one.
        cursor: Where to begin; None for the beginning of the log.
    """

    def __init__(
        self,
        client: Client,
        pod: str,
        namespace: str,
        *,
        container: str = "",
        previous: bool = False,
        cursor: Cursor | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.cursor = cursor or Cursor()
        self._client = client
        self._pod, self._namespace = pod, namespace
        self._container, self._previous = container, previous
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._retry = RetryPolicy(deadline_s=OUTAGE_S)
        self._heard_at = self._clock.monotonic()

    def __repr__(self) -> str:
        return f"<PodLog {self._namespace}/{self._pod} lines={self.cursor.received}>"

    async def read(self, *, follow: bool = False) -> AsyncGenerator[list[LogLine]]:
        """Yields the lines of one answer that are new. What it ends with that has no line end comes last.

        Raises:
            NotFound: There is no such pod any more.
            BadRequest: The container has no log, because it has not started.
            Unavailable, Timeout: The connection broke. Reading again goes on where this ended.
        """
        request = pod_log(
            self._pod,
            self._namespace,
            container=self._container,
            previous=self._previous,
            follow=follow,
            timestamps=True,
            since=self.cursor.since,
            tail=self.cursor.tail,
        )
        splitter = Splitter()
        self.cursor.restart()
        async with self._client.stream(request) as answer:
            self._heard_at = self._clock.monotonic()
            while data := await _next(answer):
                self._heard_at = self._clock.monotonic()
                yield [line for line in splitter.feed(data) if self.cursor.accept(line)]
        if not follow:
            yield [line for line in splitter.end() if self.cursor.accept(line)]

    async def follow(self, has_ended: Callable[[], bool]) -> AsyncGenerator[list[LogLine]]:
        """Yields new lines until the container has ended and all of its log has been read.

        The end of an answer does not say that the container has ended: a node that restarts ends it too. So the log
        is read once more after the end is known.

        Args:
            has_ended: Tells if the container is known to have ended.

        Raises:
            NotFound: The pod is gone.
            ApiError: The log was out of reach for too long, or is refused.
        """
        self._heard_at, attempt = self._clock.monotonic(), 0
        is_last = False
        while not is_last:
            is_last, error, before = has_ended(), None, self.cursor.received
            try:
                async with aclosing(self.read(follow=not is_last)) as answer:
                    async for lines in answer:
                        yield lines
            except ApiError as failure:
                is_last, error = False, failure
            attempt = 1 if self.cursor.received > before else attempt + 1
            if not is_last:
                await self._clock.sleep(self._pause(error, attempt))

    def _pause(self, error: ApiError | None, attempt: int) -> float:
        """Returns the seconds until the next request. Raises the error if no further request can help."""
        if error is None:
            return min(PAUSE_S * 2.0 ** min(attempt - 1, 10), MAX_PAUSE_S)
        silent_s = self._clock.monotonic() - self._heard_at
        pause_s = self._retry.delay(error, write=False, attempt=attempt, elapsed_s=silent_s, jitter=self._rng.random())
        if pause_s is None:
            raise error
        return pause_s


async def _next(answer: ByteStream) -> bytes:
    """Returns what comes next; empty at the end of the answer, and after a long silence."""
    try:
        return await answer.read(IDLE_S)
    except Timeout:
        return b""
