"""Tunes the garbage collector: collections are rare, and skip what is kept.

A full collection stops the event loop for 50 ms for the operator's modules alone (on two shared cores), and for longer
with a cache of dicts. Frozen objects cost nothing.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["relax", "seldom_collected", "settle"]

THRESHOLDS = (50_000, 50, 1000)
"""Allocations before a young, an older and a full collection. A young one of twice as many stops the event loop for
25 ms. Python's own 700 make a list of dicts take three times as long; decoded objects have no cycles, so nothing waits
to be found."""


def relax() -> None:
    """Makes collections rare and excludes the loaded modules. Call it once, when the process starts."""
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()


def settle() -> None:
    """Excludes all present objects (modules, caches) from later collections. Call it once, when caches are in sync."""
    gc.collect()
    gc.freeze()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Makes collections rare while a command runs, and lets its process end without one: its memory goes anyway."""
    relax()
    try:
        yield
    finally:
        gc.freeze()
