"""Somebody else suspends a job's child Job, as Kueue does, and releases it later."""

import functools
from typing import Any

import pytest
import pytest_asyncio
from jobs import Place
from waiting import until

from torchctl.api.kube import JOB, POD
from torchctl.api.labels import JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.script import labelled

pytestmark = pytest.mark.usefixtures("own_script")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(place: Place) -> Place:
    await place.queue()
    return place


@pytest.mark.parametrize(
    ("name", "spec"),
    [("fixed", {}), ("elastic", {"elastic": {"minNodes": 2, "maxNodes": 2}})],
    ids=["fixed", "elastic"],
)
async def test_job_suspended_by_others_continues_when_released(
    place: Place, kubelet: ScriptedKubelet, name: str, spec: dict[str, Any]
) -> None:
    """Trainers take a second to stop, so that pods of before are still there when the Job is released."""
    kubelet.script = kubelet.script.when(labelled(**{"torchrun-job-name": name}), Play(run_s=None, stop_s=1.0))
    await place.job(name, **spec)
    await place.reaches(Phase.RUNNING, name)
    before = await place.admin.get(JOB, name, place.namespace)

    await suspend(place, name, wanted=True)
    held = await place.condition("Admitted", "SuspendedByOthers", name)
    assert f"Job {name} was suspended" in held.message
    await until(functools.partial(has_pods, place, name, stopping=2))
    job = await place.reaches(Phase.QUEUED, name)
    assert (job.status.restarts.total, job.status.incident) == (0, None)
    still = await place.admin.get(JOB, name, place.namespace)
    assert (still.spec["suspend"], still.metadata.generation) == (True, before.metadata.generation + 1)

    await suspend(place, name, wanted=False)
    await until(functools.partial(has_pods, place, name, stopping=0))
    job = await place.reaches(Phase.RUNNING, name)
    after = await place.admin.get(JOB, name, place.namespace)
    assert (job.status.attempt, job.status.restarts.total) == (0, 0)
    assert after.metadata.uid == before.metadata.uid


async def suspend(place: Place, name: str, *, wanted: bool) -> None:
    """What a queueing system does to a Job."""
    meta = {"name": name, "namespace": place.namespace}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"suspend": wanted}}
    await place.admin.apply(JOB, body, field_manager="kueue", force=True)


async def pods_of(place: Place, name: str) -> list[Any]:
    return await place.admin.list(POD, namespace=place.namespace, labels=f"{JOB_NAME}={name},{ROLE}={ROLE_WORKER}")


async def has_pods(place: Place, name: str, *, stopping: int) -> bool:
    """Whether there are two workers, and so many of them are being stopped."""
    leaving = [pod.metadata.deletion_timestamp is not None for pod in await pods_of(place, name)]
    return (len(leaving), sum(leaving)) == (2, stopping)
