"""Shrinks a history that breaks a rule: drops what is not needed for that. Pure but for what `fails` does."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from torchctl.testing.sim.days.actions import Action, Day

__all__ = ["cut", "shorten", "shrink"]

T = TypeVar("T")

_AFTER_HOURS = 0.1
"""Hours of trouble after the last action, before everything has to come to rest."""


def cut(day: Day, seconds: float) -> Day:
    """Returns the day up to a moment, at which a rule was broken; all of it if that was when it came to rest."""
    if seconds > day.hours * 3600:
        return day
    actions = tuple(action for action in day.actions if action.at_s <= seconds)
    return msgspec.structs.replace(day, hours=seconds / 3600, actions=actions, rests=False)


def shrink(
    day: Day,
    fails: Callable[[Day], bool],
    *,
    most: int = 400,
    longest_s: float = 900.0,
    now_s: Callable[[], float] = time.monotonic,
) -> Day:
    """Returns a part of a day that fails too, and of which no single action can be dropped if there was time for that.

    Args:
        fails: Tells if a day breaks a rule.
        most: Days that are lived through at most.
        longest_s: Seconds by `now_s` after which no other day is begun.
    """
    left, until_s, found = most, now_s() + longest_s, day

    def still_fails(actions: Sequence[Action]) -> bool:
        nonlocal left, found
        left -= 1
        if left < 0 or now_s() >= until_s:
            return False
        fewer = _sooner(msgspec.structs.replace(found, actions=tuple(actions)))
        if not fails(fewer):
            return False
        found = fewer
        return True

    still_fails(day.actions)  # that it ends earlier makes all that follow shorter
    shorten(day.actions, still_fails)
    return found


def _sooner(day: Day) -> Day:
    """Returns the day without the time after its last action in which nothing happens."""
    if not day.rests or not day.actions:
        return day
    return msgspec.structs.replace(day, hours=min(day.hours, day.actions[-1].at_s / 3600 + _AFTER_HOURS))


def shorten(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Returns a part of items that fails as they do: halves are dropped first, then ever smaller parts (ddmin)."""
    size = len(items) // 2
    while size:
        at = 0
        while at < len(items):
            fewer = [*items[:at], *items[at + size :]]
            if fewer and fails(fewer):
                items = fewer
            else:
                at += size
        size //= 2
    return items
