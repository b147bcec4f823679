"""The operator with Kueue's own manager: jobs wait, start, are preempted, stand still and grow."""

from typing import Any

from gangcluster import told
from jobs import Place
from kueueobjects import URGENT, Quota
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.phases import Phase

QUEUE: dict[str, Any] = {"scheduling": {"kueueQueue": "train"}, "nodeResources": {"gpus": 8}}


async def test_job_waits_in_kueues_words_and_starts_with_quota(quota: Quota, place: Place) -> None:
    await quota.resize(gpus=8)
    await place.queue(**QUEUE)
    await place.job(numNodes=2)
    said = await told(place, "Admitted", "maximum capacity")
    assert (said.status, said.reason) == ("False", "WaitingForAdmission")
    assert await quota.pods("job") == []
    await quota.resize(gpus=16)
    await place.reaches(Phase.RUNNING, timeout_s=60)


async def test_preempted_job_keeps_its_attempt_and_its_job(quota: Quota, place: Place) -> None:
    await place.queue(**QUEUE)
    await place.queue("urgent", podTemplate={"metadata": {"labels": URGENT}}, **QUEUE)
    await place.job("victim", numNodes=2)
    await place.reaches(Phase.RUNNING, "victim", timeout_s=60)
    before = await quota.job("victim")
    await place.job("urgent", jobQueue="urgent", numNodes=2)
    await told(place, "Admitted", "evicted (Preempted)", "victim")
    await place.reaches(Phase.RUNNING, "urgent", timeout_s=60)
    job = await place.reaches(Phase.QUEUED, "victim")
    assert (job.status.attempt, job.status.restarts.total, job.status.requeues) == (0, 0, 1)
    await place.admin.delete(TORCHRUN_JOB, "urgent", namespace=place.namespace)
    job = await place.reaches(Phase.RUNNING, "victim", timeout_s=60)
    after = await quota.job("victim")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (job.status.attempt, job.status.restarts.total, job.status.failure) == (0, 0, None)


async def test_suspension_goes_through_the_workload(quota: Quota, place: Place) -> None:
    await place.queue(**QUEUE)
    await place.job(numNodes=2)
    await place.reaches(Phase.RUNNING, timeout_s=60)
    await suspend(place, True)
    await place.reaches(Phase.SUSPENDED)
    await quota.told("job", "Evicted", "True", "Deactivated")

    async def gone() -> bool:
        return not await quota.pods("job")

    await until(gone)
    await suspend(place, False)
    job = await place.reaches(Phase.RUNNING, timeout_s=60)
    assert (job.status.attempt, job.status.requeues) == (0, 1)


async def test_elastic_job_starts_small_and_grows(quota: Quota, place: Place) -> None:
    await quota.resize(gpus=8)
    await place.queue(**QUEUE)
    await place.job(numNodes=2, elastic={"minNodes": 1, "maxNodes": 2})
    await place.reaches(Phase.RUNNING, timeout_s=60)
    (first, waits) = sorted(await two_pods(quota), key=lambda pod: "nodeName" not in pod["spec"])
    assert "schedulingGates" in waits["spec"]
    await quota.resize(gpus=16)
    both = await quota.running("job", 2)
    assert first["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in both}


async def suspend(place: Place, wanted: bool) -> None:
    await place.admin.merge_patch(TORCHRUN_JOB, "job", {"spec": {"suspend": wanted}}, namespace=place.namespace)


async def two_pods(quota: Quota) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]] | None:
        pods = await quota.pods("job")
        return pods if len(pods) == 2 else None

    found = await until(look)
    assert found is not None
    return found
