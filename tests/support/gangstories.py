"""Stories of jobs that Kueue admits, or Volcano places, or kube-scheduler as a gang.

A person plays Kueue and Volcano, since neither of them runs.
"""

from collections.abc import Callable
from typing import Any

from gangacts import admits, evicts, heeds_pause, lets_go, places, preempts, said, waits
from story import Story
from users import Act, edits, ends, in_phase, runs

from torchctl.api.job import JobStatus
from torchctl.api.phases import Phase

__all__ = ["GANGS", "GRACE_S", "LINGER", "NATIVE", "VOLCANO_STORIES"]

VOLCANO_STORIES = "stories"
"""The Volcano Queue of these stories, which is there before they begin."""

GRACE_S = 600
"""Longer than any story: a worker that was told to stop stays until somebody lets it go."""
LINGER = "^(quota-[01]|preempted-1)-"
"""Workers that take their time, so that whoever comes late still sees that they were told to stop."""

CODE = 42
SHORT = "2/2 tasks in gang unschedulable"


def _quota(namespace: str) -> dict[str, Any]:
    patient = {"spec": {"terminationGracePeriodSeconds": GRACE_S}}
    return {"scheduling": {"kueueQueue": "train"}, "podTemplate": patient}


def _volcano(namespace: str) -> dict[str, Any]:
    """The pods select no node that there is, so that only the person who plays Volcano places them."""
    pod = {"spec": {"terminationGracePeriodSeconds": GRACE_S, "nodeSelector": {"stories.test/placed-by": "hand"}}}
    return {"scheduling": {"volcanoQueue": VOLCANO_STORIES}, "podTemplate": pod}


def _queued(attempt: int) -> Callable[[JobStatus], bool]:
    def there(status: JobStatus) -> bool:
        return (status.phase, status.attempt) == (Phase.QUEUED, attempt)

    return there


def _runs_again(status: JobStatus) -> bool:
    """The same Job runs once more."""
    return runs(0)(status) and status.requeues == 1


def _is_next(status: JobStatus) -> bool:
    """The first attempt is over; the next one waits for its pods."""
    return status.attempt == 1


def _has_gone(status: JobStatus) -> bool:
    """All pods of the last run are gone, and the Workload was resumed."""
    return said("evicted (Preempted)")(status) and not said("paused")(status)


GANGS = (
    Story(
        "quota",
        _quota,
        acts=(
            Act(_queued(0), admits()),
            Act(runs(0), evicts()),
            Act(said("paused until pods of its last run are gone"), lets_go(2)),
            Act(_has_gone, admits()),
            Act(_runs_again, ends(1, CODE)),
            Act(_is_next, lets_go(1)),
            Act(_queued(1), admits()),
            Act(runs(1), ends()),
        ),
        workers=6,
    ),
    Story(
        "quota-paused",
        _quota,
        acts=(
            Act(_queued(0), admits()),
            Act(runs(0), edits(suspend=True)),
            Act(in_phase(Phase.SUSPENDED), heeds_pause()),
            Act(in_phase(Phase.SUSPENDED), edits(suspend=False)),
            Act(_queued(0), admits()),
            Act(_runs_again, ends()),
        ),
        workers=4,
    ),
    Story(
        "quota-kept",
        _quota,
        {"runPolicy": {"podRetention": "All"}},
        acts=(
            Act(_queued(0), admits()),
            Act(runs(0), ends(1)),
            Act(lambda status: status.workers.succeeded == 1, evicts()),
            Act(_queued(1), admits()),
            Act(runs(1), ends()),
        ),
        workers=4,
    ),
    Story(
        "preempted",
        _volcano,
        acts=(
            Act(_queued(0), waits(SHORT)),
            Act(said(SHORT), places(2)),
            Act(runs(0), preempts(1)),
            Act(_is_next, lets_go(1)),
            Act(_queued(1), places(2)),
            Act(runs(1), ends()),
        ),
        workers=4,
    ),
)

NATIVE = Story(
    "native",
    lambda namespace: {"scheduling": {"scheduler": "kubernetes"}},
    acts=(Act(runs(0), ends(1, CODE)), Act(runs(1), ends())),
    workers=4,
)
"""Needs a control plane that serves Kubernetes' own gangs."""
