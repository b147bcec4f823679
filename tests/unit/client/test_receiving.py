"""Rules of where a job's code can be sent."""

import pytest

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.jobstatus import JobStatus, WorkspaceStatus
from torchctl.api.kube import ContainerState, ContainerStatus, Pod, PodStatus, Running, Waiting
from torchctl.client.receiving import Hopeless, Look, Receiver, There, companion, look
from torchctl.client.receiving import Waiting as Waits
from torchctl.runtime.kinds import Condition, ObjectMeta

RUNS = ContainerStatus(name="fetch", state=ContainerState(running=Running()))
PULLS = ContainerStatus(name="fetch", state=ContainerState(waiting=Waiting(reason="ContainerCreating")))
TAKES = Pod(ObjectMeta(name="x-sync-0", uid="u0"), status=PodStatus(container_statuses=(RUNS,)))
SERVES = Pod(ObjectMeta(name="x-sync-1", uid="u1"), status=PodStatus(init_container_statuses=(RUNS,)))
STARTS = Pod(ObjectMeta(name="x-sync-0", uid="u0"), status=PodStatus(container_statuses=(PULLS,)))


def seen(type_: JobCondition, reason: JobReason, *pods: Pod, status: str = "False") -> Look:
    conditions = (Condition(type_, status, reason, f"message of {reason}"),)
    return look(JobStatus(conditions=conditions, workspace=WorkspaceStatus(digest="sha256:1")), pods)


def test_running_fetch_container_takes_the_code() -> None:
    waits = (JobCondition.WORKSPACE_READY, JobReason.WAITING_FOR_UPLOAD)
    assert seen(*waits, TAKES) == Receiver("x-sync-0", "u0")
    assert seen(*waits, TAKES, SERVES) == Receiver("x-sync-1", "u1")


@pytest.mark.parametrize("reason", [JobReason.IMAGE_PULL_BACK_OFF, JobReason.UNSCHEDULABLE, JobReason.SYNCING])
def test_what_keeps_the_pod_is_what_is_waited_for(reason: JobReason) -> None:
    assert seen(JobCondition.WORKSPACE_READY, reason, STARTS) == Waits(f"message of {reason}")


def test_silent_operator_is_named() -> None:
    found = look(JobStatus(), [])
    assert isinstance(found, Waits)
    assert found.why == "the operator has not looked at the job yet"


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (JobCondition.ACCEPTED, JobReason.IMPOSSIBLE_GPU_COUNT),
        (JobCondition.QUEUE_FOUND, JobReason.QUEUE_NOT_READY),
        (JobCondition.WORKSPACE_READY, JobReason.FOREIGN_OBJECT),
    ],
)
def test_what_somebody_has_to_correct_is_hopeless(type_: JobCondition, reason: JobReason) -> None:
    assert seen(type_, reason, TAKES) == Hopeless(f"message of {reason}", reason.step)


@pytest.mark.parametrize(
    ("reason", "message", "said", "step"),
    [
        (JobReason.REFUSED, "Pod a: no; correct that, it is tried again", "Pod a: no", "Correct that, then submit"),
        (JobReason.QUOTA_EXCEEDED, "claim b: full; raise the quota", "claim b: full", "Raise the quota or free"),
    ],
)
def test_submit_that_ends_promises_no_further_tries(reason: JobReason, message: str, said: str, step: str) -> None:
    status = JobStatus(conditions=(Condition(JobCondition.WORKSPACE_READY, "False", reason=reason, message=message),))
    found = look(status, [])
    assert isinstance(found, Hopeless)
    assert found.why == said
    assert found.step.startswith(step)


def test_failed_job_takes_nothing() -> None:
    found = seen(JobCondition.FAILED, JobReason.WORKSPACE_TIMEOUT, TAKES, status="True")
    assert found == Hopeless("the job has failed: message of WorkspaceTimeout", "")


def test_synced_job_says_what_it_has() -> None:
    ready = (JobCondition.WORKSPACE_READY, JobReason.WORKSPACE_READY)
    assert seen(*ready, TAKES, status="True") == There(WorkspaceStatus(digest="sha256:1"))


COMPANION = Pod(
    ObjectMeta(name="x-sync-0", uid="u0"),
    status=PodStatus(container_statuses=(ContainerStatus(name="serve", state=ContainerState(running=Running())),)),
)
ENDED = Pod(ObjectMeta(name="x-sync-0", uid="u0"), status=PodStatus(phase="Failed"))


def later(*pods: Pod, phase: str = "Running", suspended: str = "False") -> Look:
    conditions = (
        Condition(JobCondition.WORKSPACE_READY, "True", JobReason.WORKSPACE_READY, ""),
        Condition(JobCondition.SUSPENDED, suspended, JobReason.SUSPENDED, ""),
    )
    return companion(JobStatus(phase=phase, conditions=conditions), pods)


def test_later_code_goes_to_the_companion() -> None:
    assert later(COMPANION) == later(COMPANION, suspended="True") == Receiver("x-sync-0", "u0")
    assert isinstance(later(), Waits)
    assert isinstance(later(STARTS, suspended="True"), Waits)


def test_later_code_for_a_job_that_ended_is_hopeless() -> None:
    """Also while its companion is still there."""
    found = later(COMPANION, phase="Succeeded")
    assert found == Hopeless("the job has ended (Succeeded) meanwhile", "Submit it under another name.")


@pytest.mark.parametrize("pods", [(), (ENDED,)])
def test_suspended_job_gets_no_other_companion(pods: tuple[Pod, ...]) -> None:
    found = later(*pods, suspended="True")
    assert isinstance(found, Hopeless)
    assert found.step == "Resume it."
