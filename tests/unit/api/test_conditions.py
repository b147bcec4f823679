"""Whoever reads a reason finds out what it means and what to do."""

import msgspec
import pytest

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.phases import Phase
from torchctl.api.queueconditions import QueueCondition, QueueReason
from torchctl.controllers.job.pods import NEXT_STEPS


@pytest.mark.parametrize("reason", [*JobReason, *QueueReason])
def test_every_reason_says_where_it_stands_and_what_it_means(reason: JobReason | QueueReason) -> None:
    assert reason.conditions
    assert set(reason.conditions) <= set(JobCondition if isinstance(reason, JobReason) else QueueCondition)
    assert reason.meaning.endswith(".")
    assert not reason.step or reason.step.endswith(".")


def test_a_reason_is_the_word_that_the_api_server_gets() -> None:
    assert [str(one) for one in (JobReason.NO_GANG, Phase.RUNNING)] == ["NoGang", "Running"]
    assert msgspec.json.encode([JobReason.NO_GANG, Phase.RUNNING]) == b'["NoGang","Running"]'


def test_every_phase_and_condition_says_what_it_means() -> None:
    assert all(one.meaning.endswith(".") for one in (*Phase, *JobCondition, *QueueCondition))


def test_what_is_wrong_with_a_pod_has_a_next_step() -> None:
    assert set(NEXT_STEPS) >= {"ImagePullBackOff", "CreateContainerConfigError", "Unschedulable"}
