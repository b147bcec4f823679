"""Somebody removes or alters the record of a job that runs."""

from datetime import timedelta
from typing import Any

import pytest
from gangobjects import NOW, QUEUED, a_job, a_node, record, seen

from torchctl.controllers.coordinator.decision import Decision, Preempt
from torchctl.controllers.coordinator.records import records
from torchctl.controllers.coordinator.values import Demand
from torchctl.controllers.settings import CoordinatorSettings

STARTED = QUEUED | {"phase": "Running", "attempt": 1, "attemptStartTime": "2026-03-01T07:40:00Z"}


@pytest.mark.parametrize(
    "altered",
    [
        {},
        {"admission": record()},
        {"admission": {"attempt": 1}},
        {"admission": record(attempt=7)},
        {"admission": record(takenBackTime="2026-03-01T07:35:00Z")},
    ],
)
@pytest.mark.parametrize("phase", ["Starting", "Running", "Restarting", "Queued"])
def test_a_started_job_holds_its_place_without_a_record(altered: dict[str, Any], phase: str) -> None:
    """Somebody has removed it, or put back that of an earlier attempt. Queued is one whose Job somebody suspended."""
    state = seen(a_job(status=STARTED | altered | {"phase": phase}), nodes=(a_node("n0"), a_node("n1")))
    (holding,) = state.holdings
    assert (state.waiting, holding.missing, holding.demand) == ((), 2, Demand(gpus=16))
    assert holding.let_in_s == (NOW - timedelta(minutes=20)).timestamp()


def test_a_place_without_a_record_can_be_taken_back() -> None:
    job = a_job(status=STARTED)
    ((_, written),) = records(
        Decision(preempt=(Preempt("team/job", "team/urgent"),)), [job], NOW, CoordinatorSettings(), words=False
    )
    assert (written.attempt, written.let_in_time) == (1, NOW - timedelta(minutes=20))
    assert (written.taken_back_time, written.preempted_for) == (NOW, "team/urgent")
