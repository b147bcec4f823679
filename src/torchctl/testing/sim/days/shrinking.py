"""Shrinks a history that breaks a rule: drops what is not needed for that. Pure but for what `fails` does."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from torchctl.testing.sim.days.actions import Action, Day

__all__ = ["cut", "shorten", "shrink"]

T = TypeVar("T")


def cut(day: Day, seconds: float) -> Day:
    """Returns the day up to a moment, at which a rule was broken; all of it if that was when it came to rest."""
    if seconds > day.hours * 3600:
        return day
    actions = tuple(action for action in day.actions if action.at_s <= seconds)
    return msgspec.structs.replace(day, hours=seconds / 3600, actions=actions, rests=False)


def shrink(day: Day, fails: Callable[[Day], bool], *, most: int = 400) -> Day:
    """Returns a part of a day that fails too, and of which no single action can be dropped.

    Args:
        fails: Tells if a day breaks a rule.
        most: Days that are lived through at most.
    """
    left = most

    def still_fails(actions: Sequence[Action]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(msgspec.structs.replace(day, actions=tuple(actions)))

    return msgspec.structs.replace(day, actions=tuple(shorten(day.actions, still_fails)))


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
