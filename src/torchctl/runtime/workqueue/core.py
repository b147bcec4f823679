"""The workqueue without I/O: decides which key runs next, and when to look again.

Promises, each held by a property test against a model:

- a key is never handed out twice at once: between `get` and `done` it is *processing*;
- nothing is lost: a key added while it is processing is handed out again after `done`;
- a key waits once, however often it is added, and the earliest due time wins; the highest priority too;
- among keys that are due, a higher priority goes first;
- keys of one priority and one group go in the order they became due, and groups take turns, so that a group with
  thousands of keys lets one with a single key pass;
- nothing starves: while keys have been due for `PATIENCE_S`, every other key handed out is the longest due of them.

Time is always an argument (`now`, seconds on any monotonic scale), so a test needs no clock. Heaps keep stale
entries and drop them when they reach the top: an entry is alive only while its key points at it. An entry for a
deadline in a week would stay for a week, and each requeue until then adds another one, so the delayed entries are also
sifted when most of them are stale.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from torchctl.runtime.workqueue.ratelimit import RateLimiter

__all__ = ["LOW_PRIORITY", "PATIENCE_S", "Item", "Load", "Statistics", "WorkQueue"]

K = TypeVar("K", bound=Hashable)

LOW_PRIORITY = -100
"""The priority of keys from an initial list: fresh changes overtake them. controller-runtime uses the same value."""


PATIENCE_S = 30.0
"""Seconds for which keys of higher priority may overtake a due key."""

SIFTED_FROM = 64
"""The number of delayed entries from which stale ones are sifted out."""


class Item(msgspec.Struct, Generic[K], frozen=True):
    """A key that was handed out, and the seconds for which it had been due."""

    key: K
    priority: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """The work at one moment, counted while the queue changes: asking for it walks over no keys.

    Attributes:
        due_by_priority: Keys that may be handed out.
        processing_s: Sum of the ages of the work in progress, in seconds.
        longest_processing_s: Age of the oldest.
    """

    due_by_priority: dict[int, int]
    processing_s: float
    longest_processing_s: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """The state of the queue at one moment: keys by state, and the age in seconds of the oldest of each."""

    due_by_priority: dict[int, int]
    delayed: int
    processing: int
    oldest_due_s: float
    idle_s: float
    """Seconds since a key was last handed out."""
    longest_processing_s: float
    processing_s: float

    @property
    def stalled_s(self) -> float:
        """Seconds for which keys have been due and none was handed out, whatever the length of the backlog."""
        return min(self.oldest_due_s, self.idle_s)

    @property
    def due(self) -> int:
        return sum(self.due_by_priority.values())


@dataclass(slots=True, eq=False)
class _Waiting:
    due_at: float
    priority: int


class _Turns:
    """Gives each new key of a priority a turn: the one after its group's last, but never one that is over."""

    def __init__(self) -> None:
        self._now = 0
        self._last: dict[Hashable, int] = {}

    def take(self, group: Hashable) -> int:
        turn = self._last[group] = max(self._now, self._last.get(group, -1) + 1)
        return turn

    def reach(self, turn: int, group: Hashable) -> None:
        """Notes the current turn, and drops groups without a later one."""
        self._now = max(self._now, turn)
        if self._last.get(group, self._now) <= self._now:
            self._last.pop(group, None)


class WorkQueue(Generic[K]):
    """Keys that wait, are due, or are being processed. Not thread-safe.

    Args:
        group: Returns the group of a key; groups take turns. None: all keys are in one group.
        on_due: Called once each time that a key becomes due, which client-go's metrics call an add.
    """

    def __init__(
        self,
        limiter: RateLimiter[K],
        group: Callable[[K], Hashable] | None = None,
        on_due: Callable[[], None] = lambda: None,
    ) -> None:
        self._limiter = limiter
        self._on_due = on_due
        self._group = group or (lambda key: None)
        self._turns: dict[int, _Turns] = {}
        self._waiting: dict[K, _Waiting] = {}
        self._processing: dict[K, float] = {}  # in the order in which they were handed out
        self._ready: dict[int, int] = {}  # by priority, the number of keys that may be handed out
        self._delayed: list[tuple[float, int, K, _Waiting]] = []
        self._due: list[tuple[int, int, int, K, _Waiting]] = []
        self._in_line: deque[tuple[K, _Waiting]] = deque()
        self._was_patient = False
        self._sequence = 0
        self._handed_out_at = -math.inf

    def __repr__(self) -> str:
        return f"<WorkQueue {len(self._waiting)} waiting, {len(self._processing)} processing>"

    def add(self, key: K, now: float, *, priority: int = 0) -> None:
        """Makes `key` due now."""
        self.add_after(key, 0.0, now, priority=priority)

    def add_after(self, key: K, delay_s: float, now: float, *, priority: int = 0) -> None:
        """Makes `key` due in `delay_s` seconds, unless it is due earlier already."""
        self._release(now)
        due_at = now + max(delay_s, 0.0)
        known = self._waiting.get(key)
        if known is not None:
            due_at, priority = min(due_at, known.due_at), max(priority, known.priority)
            if (due_at, priority) == (known.due_at, known.priority):
                return
            if known.due_at <= now and key not in self._processing:
                self._ready[known.priority] -= 1
        waiting = _Waiting(due_at, priority)
        self._waiting[key] = waiting
        self._push(key, waiting, now)
        if due_at <= now and (known is None or known.due_at > now):
            self._on_due()

    def add_rate_limited(self, key: K, now: float, *, priority: int = 0) -> float:
        """Makes `key` due after the rate limiter's delay.

        Returns:
            The delay in seconds.
        """
        delay_s = self._limiter.delay(key, now)
        self.add_after(key, delay_s, now, priority=priority)
        return delay_s

    def forget(self, key: K) -> None:
        """Resets the rate limiter's failure count of `key`."""
        self._limiter.forget(key)

    def get(self, now: float) -> Item[K] | None:
        """Hands out the first key that is due, or None. The caller must call `done` for it."""
        self._release(now)
        patient = None if self._was_patient else self._longest_due(now)
        self._was_patient = patient is not None
        chosen = patient or self._highest()
        if chosen is None:
            return None
        key, waiting = chosen
        del self._waiting[key]
        self._ready[waiting.priority] -= 1
        self._processing[key] = self._handed_out_at = now
        return Item(key, waiting.priority, now - waiting.due_at)

    def absorb(self, key: K, now: float) -> None:
        """Forgets that `key`, which is being processed, was added meanwhile, unless it is due later.

        Call it when the processing has not looked at anything yet: what it will see includes the reason to add it.
        """
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.due_at <= now and key in self._processing:
            del self._waiting[key]

    def done(self, key: K, now: float) -> float:
        """Ends the processing of `key`; if it was added again meanwhile, it may now be handed out.

        Returns:
            The seconds for which it was processed.

        Raises:
            KeyError: The key is not being processed.
        """
        self._release(now)  # while the key counts as being processed, or it would be pushed twice
        started_at = self._processing.pop(key)
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.due_at <= now:  # a later one is among the delayed entries already
            self._push(key, waiting, now)
        return now - started_at

    def next_wakeup(self) -> float | None:
        """Returns the time when the next delayed key becomes due, or None. Keys that are due already do not count."""
        while self._delayed:
            due_at, _, key, waiting = self._delayed[0]
            if self._waiting.get(key) is waiting:
                return due_at
            heapq.heappop(self._delayed)
        return None

    def ready(self, now: float) -> int:
        """Returns the number of keys that may be handed out."""
        self._release(now)
        return sum(self._ready.values())

    def load(self, now: float) -> Load:
        self._release(now)
        due = {priority: count for priority, count in self._ready.items() if count}
        oldest = next(iter(self._processing.values()), now)
        return Load(due, now * len(self._processing) - sum(self._processing.values()), now - oldest)

    def statistics(self, now: float) -> Statistics:
        due: dict[int, int] = {}
        oldest_due_s, delayed = 0.0, 0
        for key, waiting in self._waiting.items():
            if waiting.due_at > now or key in self._processing:
                delayed += waiting.due_at > now
                continue
            due[waiting.priority] = due.get(waiting.priority, 0) + 1
            oldest_due_s = max(oldest_due_s, now - waiting.due_at)
        ages = [now - started_at for started_at in self._processing.values()]
        idle_s = now - self._handed_out_at
        return Statistics(due, delayed, len(ages), oldest_due_s, idle_s, max(ages, default=0.0), sum(ages))

    def _longest_due(self, now: float) -> tuple[K, _Waiting] | None:
        """Returns the key that has been due longest, if that is longer than `PATIENCE_S`."""
        while self._in_line and not self._is_up(*self._in_line[0]):
            self._in_line.popleft()
        if self._in_line and now - self._in_line[0][1].due_at >= PATIENCE_S:
            return self._in_line.popleft()
        return None

    def _highest(self) -> tuple[K, _Waiting] | None:
        while self._due:
            _, turn, _, key, waiting = heapq.heappop(self._due)
            self._turns[waiting.priority].reach(turn, self._group(key))
            if self._is_up(key, waiting):
                return key, waiting
        return None

    def _is_up(self, key: K, waiting: _Waiting) -> bool:
        """Tells if an entry is alive and may be handed out."""
        return self._waiting.get(key) is waiting and key not in self._processing

    def _push(self, key: K, waiting: _Waiting, now: float) -> None:
        self._sequence += 1
        if waiting.due_at > now:
            heapq.heappush(self._delayed, (waiting.due_at, self._sequence, key, waiting))
            self._sift()
        elif key not in self._processing:
            turn = self._turns.setdefault(waiting.priority, _Turns()).take(self._group(key))
            heapq.heappush(self._due, (-waiting.priority, turn, self._sequence, key, waiting))
            self._in_line.append((key, waiting))
            self._ready[waiting.priority] = self._ready.get(waiting.priority, 0) + 1

    def _sift(self) -> None:
        """Drops stale delayed entries once most entries are stale, so that the cost per entry stays small."""
        if len(self._delayed) > max(SIFTED_FROM, 2 * len(self._waiting)):
            self._delayed = [entry for entry in self._delayed if self._waiting.get(entry[2]) is entry[3]]
            heapq.heapify(self._delayed)

    def _release(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            _, _, key, waiting = heapq.heappop(self._delayed)
            if self._waiting.get(key) is waiting:
                self._push(key, waiting, now)
                self._on_due()
