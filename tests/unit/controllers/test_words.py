"""Every word that a condition or an Event can give is in a table of the API, and every word of the tables is given."""

import ast
from pathlib import Path

import pytest

from torchctl.api.causes import Cause
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import JobStatus
from torchctl.api.phases import Phase
from torchctl.api.queue import QueueStatus
from torchctl.api.queueconditions import QueueCondition, QueueReason
from torchctl.api.words import EventType
from torchctl.controllers import refusals
from torchctl.controllers.job.pods import NEXT_STEPS
from torchctl.controllers.job.transitions import transitions as job_transitions
from torchctl.controllers.queue.status import transitions as queue_transitions
from torchctl.runtime.kinds import Condition

SOURCES = Path(refusals.__file__).parent
REFUSALS = refusals.REASONS
TOLD = {"Finding": 1, "Outcome": 0, "Refusal": 2, "Condition": 2}
"""Calls that give a reason, and where among their arguments it stands."""


def trees() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(SOURCES.rglob("*.py"))]


def given(table: str) -> set[str]:
    """Members of a table that the controllers name."""
    return {
        node.attr
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == table
    }


def test_no_reason_is_written_out_where_it_is_given() -> None:
    found = [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TOLD
        for argument in node.args[TOLD[node.func.id] : TOLD[node.func.id] + 1]
        if isinstance(argument, ast.Constant)
    ]
    assert found == []


def test_reasons_of_refusals_and_of_kubernetes_are_in_the_tables() -> None:
    assert {*JobReason} >= REFUSALS
    assert {*QueueReason} >= REFUSALS
    assert {"ImagePullBackOff", "Unschedulable"} <= {*NEXT_STEPS} & {*JobReason}


def test_every_reason_of_a_job_is_given_somewhere() -> None:
    unused = {reason.name for reason in JobReason if reason not in REFUSALS | {*NEXT_STEPS}} - given("JobReason")
    assert unused == set()


def test_every_reason_of_a_queue_is_given_somewhere() -> None:
    unused = {reason.name for reason in QueueReason if reason not in REFUSALS} - given("QueueReason")
    assert unused == set()


def test_every_cause_of_an_incident_is_found_somewhere() -> None:
    assert {cause.name for cause in Cause} - given("Cause") == set()


# Events.


def turned(type_: str, reason: str, *, good: bool) -> JobStatus:
    return JobStatus(conditions=(Condition(type_, "True" if good else "False", reason, "it is so"),))


STEPS = [
    (type_, reason)
    for reason in JobReason
    for type_ in reason.conditions
    if type_ not in (JobCondition.COMPLETE, JobCondition.FAILED, JobCondition.SUSPENDED)
]


@pytest.mark.parametrize(("type_", "reason"), STEPS)
def test_job_condition_emits_the_event_of_its_reason(type_: JobCondition, reason: JobReason) -> None:
    is_met = reason.event is EventType.NORMAL and reason is not JobReason.WAITING_FOR_UPLOAD
    told = job_transitions(JobStatus(), turned(type_, reason, good=is_met))
    assert told == (((reason.event, reason, "it is so"),) if reason.event else ())


@pytest.mark.parametrize("reason", sorted({*NEXT_STEPS} - {*JobReason}))
def test_waiting_reason_of_kubernetes_is_a_warning_event(reason: str) -> None:
    told = job_transitions(JobStatus(), turned(JobCondition.WORKERS_READY, reason, good=False))
    assert told == (("Warning", reason, "it is so"),)


@pytest.mark.parametrize("reason", JobReason)
def test_a_reason_that_stays_is_no_event(reason: JobReason) -> None:
    status = turned(reason.conditions[0], reason, good=False)
    assert job_transitions(status, status) == ()


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.PENDING, Phase.FAILED)])
def test_phase_that_no_condition_reports_has_its_own_event(phase: Phase) -> None:
    quiet = tuple(Condition(type_, "True", JobReason.WORKERS_READY, "it is so") for type_ in JobCondition)
    status = JobStatus(phase=phase, conditions=quiet)
    assert job_transitions(JobStatus(), status) == (("Normal", phase, "it is so"),)
    assert job_transitions(status, status) == ()


def test_failed_and_pending_phases_emit_no_event_of_their_own() -> None:
    """The condition Failed emits a failure under its reason, and the step that waits emits what it waits for."""
    failed = Condition("Failed", "True", JobReason.WORKER_FAILED, "it is so")
    told = job_transitions(JobStatus(), JobStatus(phase=Phase.FAILED, conditions=(failed,)))
    assert told == (("Warning", "WorkerFailed", "it is so"),)
    assert job_transitions(JobStatus(), JobStatus(phase=Phase.PENDING)) == ()


QUEUE_STEPS = [(type_, reason) for reason in QueueReason for type_ in reason.conditions]


@pytest.mark.parametrize(("type_", "reason"), QUEUE_STEPS)
def test_queue_condition_emits_the_event_of_its_reason(type_: QueueCondition, reason: QueueReason) -> None:
    good = "True" if reason.event is EventType.NORMAL else "False"
    status = QueueStatus(conditions=(Condition(type_, good, reason, "it is so"),))
    assert queue_transitions(QueueStatus(), status) == (((reason.event, reason, "it is so"),) if reason.event else ())
