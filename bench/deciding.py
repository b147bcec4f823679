"""Memory of the coordinator's decisions in a process of its own: `python -m bench.deciding tracemalloc|rss`.

Prints one JSON document. The process holds the objects of the cluster as the caches would, and decides several times,
as the operator does: the first decision reads every object, and the later ones what has changed.
"""

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.coordinator import NOW_S, cluster
from bench.observed import observed
from bench.syncing import peak, resident
from torchctl.controllers.coordinator.deciding import Deciding
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.memory import relax, settle

__all__ = ["measure"]

DECISIONS = 5
FORGET_PEAK = "5"
"""What makes the kernel forget the peak so far (proc_pid_clear_refs(5))."""


def measure(way: str) -> dict[str, int]:
    """Returns bytes before the first decision, at the peak of all, and after them; with the number of jobs and pods.

    Args:
        way: `rss` for the whole process; `tracemalloc` for what was allocated since the objects were there.
    """
    relax()
    seen, now = observed(cluster(busy=1.0)), datetime.fromtimestamp(NOW_S, UTC)
    settle()
    current, highest = _by_tracemalloc() if way == "tracemalloc" else _by_rss()
    before, deciding = current(), Deciding(CoordinatorSettings())
    for _ in range(DECISIONS):
        deciding.decide(seen, now, words=True)
    most = highest()
    gc.collect()
    return {"before": before, "peak": most, "kept": current(), "jobs": len(seen.jobs), "pods": len(seen.pods)}


def _by_tracemalloc() -> tuple[Callable[[], int], Callable[[], int]]:
    tracemalloc.start()
    return lambda: tracemalloc.get_traced_memory()[0], lambda: tracemalloc.get_traced_memory()[1]


def _by_rss() -> tuple[Callable[[], int], Callable[[], int]]:
    Path("/proc/self/clear_refs").write_text(FORGET_PEAK)
    return resident, peak


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
