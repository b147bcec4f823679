"""Stories of jobs that the coordinator lets in, makes leave and lets in again."""

from collections.abc import Callable
from typing import Any

from gangacts import lets_go
from roomacts import FOREIGN, brings, frees, occupies, places_queue, releases, removes
from story import Story
from users import Act, deletes, edits, ends, in_phase, looks, runs

from torchctl.api.job import JobStatus
from torchctl.api.jobstatus import NEVER_FITS
from torchctl.api.phases import Phase
from torchctl.controllers.coordinator.decision import Why
from torchctl.controllers.settings import CoordinatorSettings

__all__ = ["COORDINATED", "FOREIGN", "LEAVING"]

CODE = 42
GRACE_S = 600
"""Longer than any story: a worker that was told to stop stays until somebody lets it go."""
LEAVING = "^yields-[01]-"
"""Workers that save a checkpoint after they were told to stop, until somebody lets them go."""

PROMPT = CoordinatorSettings(period_s=0.05)
IMPATIENT = CoordinatorSettings(period_s=0.05, word_period_s=0.5, place_within_s=8.0, pause_s=1.0)
"""Takes room back soon. A gang that finds all its nodes has them by then, even if its operator is cut down first."""


def _is_next(status: JobStatus) -> bool:
    """The first attempt is over, whether its pods are gone or not."""
    return status.attempt == 1


def _let_in(attempt: int) -> Callable[[JobStatus], bool]:
    def there(status: JobStatus) -> bool:
        record = status.admission
        given = record is not None and record.let_in_time is not None and record.taken_back_time is None
        return given and record is not None and (record.attempt, status.attempt) == (attempt, attempt)

    return there


def _told(reason: str, attempt: int = 0) -> Callable[[JobStatus], bool]:
    """The coordinator has said why the attempt waits."""

    def there(status: JobStatus) -> bool:
        record = status.admission
        return record is not None and (record.attempt, record.reason) == (attempt, reason)

    return there


def _runs_after(attempt: int, *, incidents: dict[str, int], misses: int = 0) -> Callable[[JobStatus], bool]:
    def there(status: JobStatus) -> bool:
        record = status.admission
        missed = record is not None and record.misses == misses
        return runs(attempt)(status) and dict(status.restarts.by_cause) == incidents and missed

    return there


def _one_by_one(namespace: str) -> dict[str, Any]:
    patient = {"spec": {"terminationGracePeriodSeconds": GRACE_S}}
    return {"quota": {"jobs": 1}, "maxNodes": 2, "preemption": "WithinQueue", "podTemplate": patient}


COORDINATED = (
    Story("let-in", acts=(Act(runs(0), ends(1, CODE)), Act(runs(1), ends())), workers=4, coordinator=PROMPT),
    Story(
        "one-room",
        lambda namespace: {"quota": {"jobs": 1}},
        {"suspend": True},
        others={"inside": {}},
        acts=(
            Act(runs(0), looks(), "inside"),
            Act(in_phase(Phase.SUSPENDED), edits(suspend=False)),
            Act(in_phase(Phase.QUEUED), looks()),
            Act(runs(0), ends(), "inside"),
            Act(runs(0), ends()),
        ),
        workers=4,
        coordinator=PROMPT,
    ),
    # Whoever is told that it never fits was told by a decision that came after the first job had begun to leave, and
    # that decision has not let the urgent one in yet.
    Story(
        "yields",
        _one_by_one,
        others={"urgent": {"suspend": True, "priority": 10}, "large": {"suspend": True, "numNodes": 3}},
        acts=(
            Act(runs(0), looks()),
            Act(in_phase(Phase.SUSPENDED), edits(suspend=False), "urgent"),
            Act(_is_next, looks()),
            Act(in_phase(Phase.SUSPENDED), edits(suspend=False), "large"),
            Act(_told(NEVER_FITS), deletes(), "large"),
            Act(_told(Why.PREEMPTING), looks(), "urgent"),
            Act(_is_next, lets_go(2)),
            Act(_runs_after(0, incidents={}), looks(), "urgent"),
            Act(in_phase(Phase.QUEUED), looks()),
            Act(runs(0), ends(), "urgent"),
            Act(_runs_after(1, incidents={"Preempted": 1}), ends()),
        ),
        workers=6,
        coordinator=PROMPT,
    ),
    # Its pods pass the gates when one of its two places is taken: half a gang, which leaves, and waits for that place.
    Story(
        "displaced",
        places_queue,
        acts=(
            Act(_told(NEVER_FITS), brings(2)),
            Act(_let_in(0), occupies()),
            Act(_let_in(0), releases(2)),
            Act(_told(Why.NODES, 1), frees()),
            Act(_let_in(1), releases(2)),
            Act(_runs_after(1, incidents={}, misses=1), ends()),
            Act(in_phase(Phase.SUCCEEDED), removes(2)),
        ),
        workers=4,
        coordinator=IMPATIENT,
    ),
)
