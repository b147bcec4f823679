"""Counts may lag behind the workers for a moment, and nothing else may."""

from typing import Any

import pytest
from msgspec.structs import replace

from torchctl.api.job import JobStatus, NodeCounts, WorkerCounts
from torchctl.api.phases import Phase
from torchctl.controllers.job.status_throttle import StatusThrottle, only_counts_differ
from torchctl.runtime.kinds import Condition, Key

JOB = Key("team", "job")
STARTING = Condition("WorkersReady", "False", "WorkersStarting", "0 of 2 workers of Job job run")
BEFORE = JobStatus(phase=Phase.STARTING, conditions=(STARTING,), nodes=NodeCounts(desired=2))
COUNTED = replace(
    BEFORE,
    conditions=(replace(STARTING, message="1 of 2 workers of Job job run"),),
    nodes=NodeCounts(desired=2, ready=1),
    workers=WorkerCounts(pending=1, running=1, ready=1),
    workers_status="1/2 running",
)


def test_changes_of_counts_within_the_period_are_one_write() -> None:
    lagging = StatusThrottle(0.5)
    assert lagging.left_s(JOB, BEFORE, COUNTED, 10.0) == 0.5
    more = replace(COUNTED, workers=WorkerCounts(running=2, ready=1))
    assert lagging.left_s(JOB, BEFORE, more, 10.25) == 0.25
    assert lagging.left_s(JOB, BEFORE, more, 10.5) == 0
    assert lagging.left_s(JOB, BEFORE, more, 11.0) == 0.5, "what was written is forgotten"


def test_counts_that_did_not_change_delay_nothing() -> None:
    lagging = StatusThrottle(0.5)
    lagging.left_s(JOB, BEFORE, COUNTED, 10.0)
    assert lagging.left_s(JOB, BEFORE, BEFORE, 10.25) == 0
    assert lagging.left_s(JOB, BEFORE, COUNTED, 10.75) == 0.5


def test_no_period_no_wait() -> None:
    assert StatusThrottle(0).left_s(JOB, BEFORE, COUNTED, 10.0) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"phase": Phase.RUNNING},
        {"attempt": 1},
        {"gpus": 8},
        {"nodes": NodeCounts(desired=3)},
        {"observed_generation": 2},
        {"conditions": (replace(STARTING, status="True"),)},
        {"conditions": (replace(STARTING, reason="ImagePullBackOff"),)},
        {"conditions": (STARTING, Condition("Failed", "True", "WorkerFailed", "pod job-0 failed"))},
    ],
)
def test_other_changes_are_written_at_once_with_the_counts(change: dict[str, Any]) -> None:
    lagging = StatusThrottle(0.5)
    lagging.left_s(JOB, BEFORE, COUNTED, 10.0)
    turned = replace(COUNTED, **change)
    assert not only_counts_differ(BEFORE, turned)
    assert lagging.left_s(JOB, BEFORE, turned, 10.1) == 0


def test_jobs_do_not_wait_for_each_other() -> None:
    lagging = StatusThrottle(0.5)
    lagging.left_s(JOB, BEFORE, COUNTED, 10.0)
    assert lagging.left_s(Key("team", "other"), BEFORE, COUNTED, 10.4) == 0.5
