"""Decides which Events to write: counts repeats, combines similar Events, and limits the rate of each object.

Pure, with client-go's rules and constants (tools/record/events_cache.go). An Event's name is derived from its
content, so that a restarted process continues the count of the one before it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from torchctl.runtime.kinds import ObjectReference

__all__ = ["EventSeries", "Occurrence", "Series"]

SIMILAR = 10
"""More different messages of one object, type and reason within `SIMILAR_WITHIN_S` are written as one Event."""
SIMILAR_WITHIN_S = 600.0
COMBINED = "(combined from similar events): "

BURST = 25
REFILL_S = 300.0
"""An object may have `BURST` writes of Events at once and one more every `REFILL_S` seconds."""

REMEMBERED = 4096

MAX_MESSAGE = 1024
MAX_NAME = 253

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something happened to an object, at wall clock time `at`."""

    regarding: ObjectReference
    type: str
    reason: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Series:
    """The Event to be written for an occurrence: created if `count` is 1, else brought up to date."""

    name: str
    regarding: ObjectReference
    type: str
    reason: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime


class EventSeries:
    """Remembers the last few thousand Events."""

    def __init__(self) -> None:
        self._messages: _Recent[Hashable, dict[str, float]] = _Recent()
        self._series: _Recent[str, Series] = _Recent()
        self._buckets: _Recent[ObjectReference, tuple[float, float]] = _Recent()

    def observe(self, occurrence: Occurrence, now: float) -> Series | None:
        """Returns the Event to write, or None if the object has exceeded its rate limit.

        Args:
            now: Seconds of a monotonic clock.
        """
        if not self._spend(occurrence.regarding, now):
            return None
        subject, message = self._combine(occurrence, now)
        name = _name(occurrence, subject)
        known = self._series.get(name)
        series = Series(
            name=name,
            regarding=occurrence.regarding,
            type=occurrence.type,
            reason=occurrence.reason,
            message=message,
            count=known.count + 1 if known else 1,
            first_at=known.first_at if known else occurrence.at,
            last_at=occurrence.at,
        )
        self._series.put(name, series)
        return series

    def resume(self, series: Series, count: int) -> None:
        """Corrects the count of a series that an earlier process began, or that has expired."""
        known = self._series.get(series.name)
        if known is not None:
            self._series.put(series.name, replace(known, count=count))

    def _spend(self, regarding: ObjectReference, now: float) -> bool:
        tokens, filled_at = self._buckets.get(regarding) or (float(BURST), now)
        tokens = min(tokens + (now - filled_at) / REFILL_S, float(BURST))
        granted = tokens >= 1
        self._buckets.put(regarding, (tokens - granted, now))
        return granted

    def _combine(self, occurrence: Occurrence, now: float) -> tuple[str, str]:
        """Returns the text that identifies the series beside object, type and reason, and the message to show."""
        message = occurrence.message[:MAX_MESSAGE]
        key = (occurrence.regarding, occurrence.type, occurrence.reason)
        seen = {text: at for text, at in (self._messages.get(key) or {}).items() if now - at < SIMILAR_WITHIN_S}
        if message in seen or len(seen) < SIMILAR:
            seen[message] = now
            self._messages.put(key, seen)
            return message, message
        # Combined Events extend the series too, so that it ends only after ten quiet minutes.
        newest = max(seen, key=lambda text: seen[text])
        seen[newest] = now
        self._messages.put(key, seen)
        return COMBINED, (COMBINED + message)[:MAX_MESSAGE]


def _name(occurrence: Occurrence, subject: str) -> str:
    ref = occurrence.regarding
    parts = (ref.api_version, ref.kind, ref.namespace, ref.name, ref.uid, occurrence.type, occurrence.reason)
    digest = hashlib.sha256("\0".join((*parts, subject)).encode()).hexdigest()[:16]
    return f"{ref.name[: MAX_NAME - 17].rstrip('.-')}.{digest}"


class _Recent(Generic[K, V]):
    """A mapping of limited size that drops the least recently used entry."""

    def __init__(self) -> None:
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > REMEMBERED:
            self._items.popitem(last=False)
