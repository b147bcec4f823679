"""What a job is waited for, and whether it is so."""

import pytest

from torchctl.api.jobstatus import JobStatus
from torchctl.api.phases import Phase
from torchctl.client.errors import UsageError
from torchctl.client.views import JobView
from torchctl.client.wait import Goal, Progress, judge
from torchctl.runtime.kinds import Condition, ObjectMeta

REACHED, WAITING, MISSED = Progress.REACHED, Progress.WAITING, Progress.MISSED


def job(phase: str = "", **conditions: str) -> JobView:
    found = tuple(Condition(type_, status) for type_, status in conditions.items())
    return JobView(ObjectMeta(name="vit"), status=JobStatus(phase=phase, conditions=found))


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("finished", Goal("finished")),
        ("running", Goal("Running")),
        ("phase=Running", Goal("Running")),
        ("DELETED", Goal("deleted")),
        ("delete", Goal("deleted")),
        ("condition=Admitted", Goal(condition="Admitted")),
        ("condition=admitted=false", Goal(condition="Admitted", status="False")),
        ("condition=WorkersReady=Unknown", Goal(condition="WorkersReady", status="Unknown")),
    ],
)
def test_a_goal_is_read_in_any_case(text: str, goal: Goal) -> None:
    assert Goal.parse(text) == goal
    assert Goal.parse(str(goal).replace("condition ", "condition=")) == goal


@pytest.mark.parametrize(
    "text", ["", "Done", "phase=", "phase=deleted", "condition=", "condition=Good", "condition=Failed=yes"]
)
def test_a_goal_that_does_not_exist_names_those_that_do(text: str) -> None:
    with pytest.raises(UsageError, match=r"there is no .* Known: "):
        Goal.parse(text)


@pytest.mark.parametrize(
    ("goal", "seen", "progress"),
    [
        ("finished", job("Running"), WAITING),
        ("finished", job("Succeeded"), REACHED),
        ("finished", job("Failed"), REACHED),
        ("finished", None, MISSED),
        ("Running", job(), WAITING),
        ("Running", job("Running"), REACHED),
        ("Running", job("Succeeded"), REACHED),
        ("Running", job("Failed"), MISSED),
        ("Succeeded", job("Failed"), MISSED),
        ("Failed", job("Succeeded"), MISSED),
        ("Suspended", job("Restarting"), WAITING),
        ("deleted", job("Failed"), WAITING),
        ("deleted", None, REACHED),
        ("condition=Admitted", job("Queued"), WAITING),
        ("condition=Admitted", job("Queued", Admitted="False"), WAITING),
        ("condition=Admitted=False", job("Queued", Admitted="False"), REACHED),
        ("condition=Admitted", job("Failed", Admitted="True"), REACHED),
        ("condition=Admitted", job("Failed"), MISSED),
        ("condition=Admitted", None, MISSED),
    ],
)
def test_a_job_is_judged_by_its_phase_and_conditions(goal: str, seen: JobView | None, progress: Progress) -> None:
    assert judge(Goal.parse(goal), seen) is progress


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_waited_for(phase: Phase) -> None:
    assert judge(Goal.parse(phase.lower()), job(phase)) is REACHED
