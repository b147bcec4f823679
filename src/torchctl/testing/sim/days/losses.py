"""Statuses of jobs that somebody writes over, by none or by an older one. Pure."""

from collections.abc import Callable
from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.testing.fake.objects import Changed

__all__ = ["Losses"]

Json = dict[str, Any]


class Losses:
    """Remembers the statuses of all jobs, and tells while one is written over: no rule is about what people write."""

    def __init__(self) -> None:
        self._uid = ""
        self._known: dict[str, list[tuple[float, Json]]] = {}

    def on_change(self, changed: Changed, now_s: float) -> None:
        """Takes note of a job's status."""
        if changed.served.kind == TORCHRUN_JOB:
            self._known.setdefault(changed.new["metadata"]["uid"], []).append((now_s, changed.new.get("status", {})))

    def lose(self, uid: str, until_s: float | None, write: Callable[[Json], None]) -> None:
        """Writes over a status what it was at a time; nothing if that is None, or the job had none then."""
        known = [] if until_s is None else [status for since_s, status in self._known[uid] if since_s <= until_s]
        self._uid = uid
        write(known[-1] if known else {})
        self._uid = ""

    def concerns(self, uid: str) -> bool:
        """Whether the change that is seen now is such a write."""
        return uid == self._uid
