"""The log of one container as it is written, over cuts of the connection. RBAC: `get` on pods/log."""

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, NotFound, Timeout
from torchctl.runtime.client.exchange import ByteStream
from torchctl.runtime.client.loglines import Cursor, LogLine, Splitter
from torchctl.runtime.client.requests import pod_log
from torchctl.runtime.client.retry import RetryPolicy
from torchctl.runtime.clock import Clock, SystemClock

__all__ = ["OUTAGE_S", "PodLog"]

IDLE_S = 300.0
"""Seconds of silence after which the log is asked for again: the connection may have ended without a word."""

OUTAGE_S = 300.0
"""Seconds for which a log that is followed may be out of reach before it is given up."""

MAX_LAST = 5
"""The number of answers in a row without anything new after which a log is taken as read, however they end."""

PAUSE_S = 0.1
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
        outage_s: Seconds for which the log may be out of reach before it is given up.
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
        outage_s: float = OUTAGE_S,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.cursor = cursor or Cursor()
        self._client = client
        self._pod, self._namespace = pod, namespace
        self._container, self._previous = container, previous
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._retry = RetryPolicy(deadline_s=outage_s)
        self._heard_at = self._clock.monotonic()

    def __repr__(self) -> str:
        return f"<PodLog {self._namespace}/{self._pod} lines={self.cursor.received}>"

    async def follow(self, has_ended: Callable[[], bool]) -> AsyncGenerator[list[LogLine]]:
        """Yields new lines until the container has ended and all of its log has been read.

        The end of an answer says neither that the container has ended nor that the answer was whole: if the node cuts
        its connection, the API server ends its own answer as if all was well. So the log of a container that has ended
        is read until an answer ends as the one before it.

        Args:
            has_ended: Tells if the container is known to have ended.

        Raises:
            NotFound: The pod is gone, and its log may have gone on after what was read.
            BadRequest: The container has no log, because it has not started.
            ApiError: The log was out of reach for too long, or is refused.
        """
        self._heard_at, attempt, is_whole = self._clock.monotonic(), 0, False
        rest: bytes | None = None
        while not is_whole:
            is_last, error, before, splitter = has_ended(), None, self.cursor.received, Splitter()
            try:
                async with aclosing(self._answer(splitter, follow=not is_last)) as answer:
                    async for lines in answer:
                        yield lines
            except NotFound:
                if rest is None:
                    raise
                return  # the pod was deleted after its log had come to an end
            except ApiError as failure:
                error = failure
            is_new = self.cursor.received > before
            attempt = 1 if is_new else attempt + 1
            is_same = (self.cursor.is_caught_up and splitter.rest == rest) or attempt >= MAX_LAST
            is_whole = is_last and error is None and not is_new and is_same
            rest = splitter.rest if error is None else None
            if is_whole:
                yield self._new(splitter.end())
            else:
                await self._clock.sleep(self._pause(error, attempt))

    async def snapshot(self) -> AsyncGenerator[list[LogLine]]:
        """Yields the lines that a container which still runs has written so far. Raises as `follow`."""
        self._heard_at, attempt, is_whole = self._clock.monotonic(), 0, False
        while not is_whole:
            attempt += 1
            try:
                async with aclosing(self._answer(Splitter(), follow=False)) as answer:
                    async for lines in answer:
                        yield lines
                is_whole = True
            except ApiError as error:
                await self._clock.sleep(self._pause(error, attempt))

    async def _answer(self, splitter: Splitter, *, follow: bool) -> AsyncGenerator[list[LogLine]]:
        """Yields the lines of one answer that are new. The splitter keeps what it ends with that has no line end."""
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
        self.cursor.restart()
        async with self._client.stream(request) as answer:
            self._heard_at = self._clock.monotonic()
            while data := await _next(answer):
                self._heard_at = self._clock.monotonic()
                yield self._new(splitter.feed(data))

    def _new(self, lines: list[LogLine]) -> list[LogLine]:
        return [line for line in lines if self.cursor.accept(line)]

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
