"""A job whose status somebody removes or sets back while a later attempt runs, on the real control plane."""

import functools
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from jobs import Place
from waiting import until

from torchctl.api.job import TORCHRUN_JOB, JobStatus
from torchctl.api.kube import JOB, POD, Pod
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.runtime.client.errors import Conflict
from torchctl.runtime.conditions import find
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.nodekinds import Pod as PlayedPod

pytestmark = pytest.mark.usefixtures("own_script")

FOR_EVER = Play(run_s=None)
FAILED_ONCE = Play(exit_code=3)


def worker(pod: PlayedPod, job: str, attempt: int, index: int | None = None) -> bool:
    labels = pod.metadata.labels
    found = (labels.get(JOB_NAME), labels.get(ROLE), labels.get(ATTEMPT))
    return found == (job, ROLE_WORKER, str(attempt)) and (
        index is None or labels.get("batch.kubernetes.io/job-completion-index") == str(index)
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(place: Place) -> AsyncIterator[Place]:
    await place.queue()
    yield place


@pytest.fixture
def plays(kubelet: ScriptedKubelet) -> Callable[..., None]:
    def play(what: Play, job: str, attempt: int, index: int | None = None) -> None:
        played = functools.partial(worker, job=job, attempt=attempt, index=index)
        kubelet.script = kubelet.script.when(played, what)

    return play


async def workers(place: Place, job: str, attempt: int) -> dict[str, Pod]:
    labels = f"{JOB_NAME}={job},{ROLE}={ROLE_WORKER},{ATTEMPT}={attempt}"
    return {pod.metadata.uid: pod for pod in await place.admin.list(POD, namespace=place.namespace, labels=labels)}


async def made(place: Place, job: str) -> dict[str, str]:
    """The worker Jobs that are there, each with its uid."""
    found = await place.admin.list(JOB, namespace=place.namespace, labels=f"{JOB_NAME}={job}")
    return {one.metadata.name: one.metadata.uid for one in found}


async def completed_at(place: Place, job: str) -> datetime | None:
    """When the Job of the only attempt was complete; None before."""
    (found,) = await place.admin.list(JOB, namespace=place.namespace, labels=f"{JOB_NAME}={job}")
    return found.status.completion_time


async def has_status(place: Place, job: str, status: JobStatus | None) -> None:
    """Somebody writes over all of a job's status: nothing, or another one."""
    while True:
        live = await place.admin.get_raw(TORCHRUN_JOB, job, place.namespace)
        body = {field: value for field, value in live.items() if field != "status"}
        if status is not None:
            body["status"] = msgspec.to_builtins(status)
        try:
            await place.admin.replace(TORCHRUN_JOB, body, subresource="status")
        except Conflict:
            continue  # its operator has just written
        return


async def exit_zero(place: Place, pods: dict[str, Pod]) -> None:
    """The kubelet says of each pod that its trainer has exited 0."""
    ended: dict[str, Any] = {"name": "trainer", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    for pod in pods.values():
        body = {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}
        await place.admin.merge_patch(POD, pod.metadata.name, body, namespace=place.namespace, subresource="status")


@pytest.mark.parametrize("name", ["lost", "older"])
async def test_no_second_attempt_begins_beside_the_one_that_runs(
    place: Place, plays: Callable[..., None], name: str
) -> None:
    plays(FOR_EVER, name, 0)
    plays(FAILED_ONCE, name, 0, 1)
    plays(FOR_EVER, name, 1)
    await place.job(name)
    job = await place.in_attempt(1, name)
    jobs, pods = await made(place, name), await workers(place, name, 1)
    older = msgspec.structs.replace(job.status, attempt=0) if name == "older" else None
    await has_status(place, name, older)
    job = await place.in_attempt(1, name)
    await until(lambda: tells(place, name))
    assert (await made(place, name), (await workers(place, name, 1)).keys()) == (jobs, pods.keys())
    assert job.status.queue_revision
    await exit_zero(place, pods)
    job = await place.reaches(Phase.SUCCEEDED, name)
    assert job.status.attempt == 1
    assert (await made(place, name)).items() <= jobs.items()


async def test_a_finished_job_does_not_train_again(place: Place) -> None:
    """Its Job is all that tells of it."""
    await place.job("done")
    await place.reaches(Phase.SUCCEEDED, "done")
    jobs = await made(place, "done")
    completed = await until(lambda: completed_at(place, "done"))
    await has_status(place, "done", None)
    job = await place.reaches(Phase.SUCCEEDED, "done")
    complete = find(job.status.conditions, "Complete")
    assert complete is not None
    assert (job.status.attempt, complete.reason) == (0, "Succeeded")
    assert (job.status.completion_time, await made(place, "done")) == (completed, jobs)


async def test_a_removed_job_does_not_train_again(place: Place) -> None:
    """Its Service tells that workers were started."""
    await place.job("removed", runPolicy={"podRetention": "None"})
    await place.reaches(Phase.SUCCEEDED, "removed")
    await place.gone(JOB, "removed")
    await has_status(place, "removed", None)
    await place.condition("Failed", "JobDisappeared", "removed")
    assert not await made(place, "removed")


async def tells(place: Place, job: str) -> bool:
    return any(event.reason == "StatusLost" for event in await place.events(job))
