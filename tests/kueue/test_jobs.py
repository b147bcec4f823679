"""Kueue's own manager admits the operator's jobs: they wait with its words, are evicted and paused, and come back."""

from typing import Any

import pytest_asyncio
from gangcluster import told
from jobs import Place
from kueuejobs import ARCH
from kueueobjects import LINUX, URGENT, Quota, condition
from kueueprograms import Kueue
from waiting import until

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import POD
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.testing.kubelet import ScriptedKubelet

WHOLE_NODES = {"gpus": 8}
ELASTIC = {"minNodes": 1, "maxNodes": 2}


@pytest_asyncio.fixture(loop_scope="session")
async def train(quota: Quota, place: Place) -> Place:
    """A queue whose jobs wait in the LocalQueue `train`. Its jobs go before Kueue's queues do."""
    await place.queue(scheduling={"kueueQueue": "train", "nodeSelector": ARCH}, nodeResources=WHOLE_NODES)
    return place


async def test_job_waits_with_the_words_of_its_workload(quota: Quota, train: Place) -> None:
    """It starts when there is quota, and no later reconcile changes its Job."""
    await quota.resize(gpus=8)
    await train.job()
    said = await told(train, "Admitted", "maximum capacity (8)")
    assert (said.status, said.reason) == ("False", "WaitingForAdmission")
    assert (await quota.workload("job"))["metadata"]["name"] in said.message
    assert await quota.pods("job") == []
    await quota.resize(gpus=16)
    job = await train.reaches(Phase.RUNNING, timeout_s=60)
    assert (job.status.attempt, job.status.requeues) == (0, 0)
    before = await quota.job("job")
    assert before["spec"]["template"]["spec"]["nodeSelector"] == ARCH | LINUX
    await train.admin.merge_patch(
        TORCHRUN_QUEUE, "queue", {"metadata": {"labels": {"looked": "at"}}}, namespace=train.namespace
    )
    await train.touch()
    await train.condition("Admitted", "Admitted")
    assert (await quota.job("job"))["metadata"]["generation"] == before["metadata"]["generation"]


async def test_preempted_job_comes_back_in_the_same_attempt(quota: Quota, train: Place) -> None:
    """The same Job with new pods; nothing is counted as a failure."""
    await train.job("first")
    await train.reaches(Phase.RUNNING, "first", timeout_s=60)
    before = await quota.job("first")
    await train.job("second", labels=URGENT)
    said = await told(train, "Admitted", "evicted (Preempted): Preempted to accommodate", "first")
    assert (said.status, said.reason) == ("False", "WaitingForAdmission")
    await train.reaches(Phase.RUNNING, "second", timeout_s=60)
    await train.admin.delete(TORCHRUN_JOB, "second", namespace=train.namespace)
    job = await _again(train, "first")
    assert (job.status.attempt, job.status.restarts.total) == (0, 0)
    assert (await quota.job("first"))["metadata"]["uid"] == before["metadata"]["uid"]


async def test_suspended_job_pauses_its_workload(quota: Quota, train: Place) -> None:
    """Resumed, the same Job goes on in the same attempt."""
    await train.job()
    await train.reaches(Phase.RUNNING, timeout_s=60)
    before = await quota.job("job")
    await _suspend(train, True)
    await train.reaches(Phase.SUSPENDED)
    await quota.running("job", 0)
    assert (await quota.workload("job"))["spec"]["active"] is False
    await _suspend(train, False)
    job = await train.reaches(Phase.RUNNING, timeout_s=90)
    assert (job.status.attempt, job.status.restarts.total) == (0, 0)
    assert (await quota.job("job"))["metadata"]["uid"] == before["metadata"]["uid"]


async def test_workload_that_an_admin_made_inactive_stays_so(quota: Quota, train: Place) -> None:
    await train.job()
    await train.reaches(Phase.RUNNING, timeout_s=60)
    await quota.activate("job", active=False)
    await told(train, "Admitted", "it is inactive, set its spec.active to true")
    await train.touch()
    assert (await quota.workload("job"))["spec"]["active"] is False
    await quota.activate("job", active=True)
    await _again(train, "job")


async def test_deleted_worker_is_an_incident_as_without_kueue(quota: Quota, train: Place) -> None:
    """The next attempt has a Job, and so a Workload, of its own."""
    await train.job()
    await train.reaches(Phase.RUNNING, timeout_s=60)
    (pod, _) = await quota.running("job", 2)
    await train.admin.delete(POD, pod["metadata"]["name"], namespace=train.namespace)
    job = await train.in_attempt(1, timeout_s=90)
    assert dict(job.status.restarts.by_cause) == {"Deleted": 1}
    assert condition(await quota.workload("job-r1"), "Admitted")[0] == "True"


async def test_held_job_of_a_past_attempt_takes_no_quota(quota: Quota, train: Place, nodes: ScriptedKubelet) -> None:
    """A gang with a worker done cannot begin again. Its Job is kept to be read, and has a place in the queue."""
    await train.job("first", runPolicy={"podRetention": "All"})
    await train.reaches(Phase.RUNNING, "first", timeout_s=60)
    (pod, _) = await quota.running("first", 2)
    nodes.end(train.namespace, pod["metadata"]["name"])
    await until(lambda: _has_one_done(quota, "first"))
    await train.job("second", labels=URGENT)
    await train.reaches(Phase.RUNNING, "second", timeout_s=90)
    await until(lambda: _is_inactive(quota, "first"), timeout_s=60)
    await quota.told("first-r1", "QuotaReserved", "False")
    await train.admin.delete(TORCHRUN_JOB, "second", namespace=train.namespace)
    job = await train.reaches(Phase.RUNNING, "first", timeout_s=90)
    assert (job.status.attempt, job.status.restarts.total) == (1, 0)
    assert await _is_inactive(quota, "first")
    assert (await quota.job("first"))["spec"]["suspend"] is True


async def test_elastic_job_starts_small_and_grows_by_a_slice(quota: Quota, train: Place) -> None:
    await quota.resize(gpus=8)
    await train.job(numNodes=2, elastic=ELASTIC)
    await train.condition("Admitted", "Admitted", timeout_s=60)

    async def half() -> bool:
        pods = await quota.pods("job")
        return sorted(pod["status"]["phase"] for pod in pods) == ["Pending", "Running"]

    await until(half, timeout_s=60)
    (first,) = [pod for pod in await quota.pods("job") if pod["status"]["phase"] == "Running"]
    await quota.resize(gpus=16)
    await train.reaches(Phase.RUNNING, timeout_s=60)
    assert first["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in await quota.running("job", 2)}


async def test_elastic_job_shrinks_its_slice_and_restarts_nothing(quota: Quota, train: Place) -> None:
    """The worker that stays is the same, and what the other one held is free for the next job."""
    await train.job("first", numNodes=2, elastic=ELASTIC)
    await train.reaches(Phase.RUNNING, "first", timeout_s=60)
    before = {_index(pod): pod["metadata"]["uid"] for pod in await quota.running("first", 2)}
    await train.job("second", numNodes=1)
    await quota.told("second", "QuotaReserved", "False", words="nvidia.com/gpu")
    await train.admin.merge_patch(TORCHRUN_JOB, "first", {"spec": {"numNodes": 1}}, namespace=train.namespace)
    await train.reaches(Phase.RUNNING, "second", timeout_s=60)
    (left,) = await quota.running("first", 1)
    assert (_index(left), left["metadata"]["uid"]) == ("0", before["0"])
    (slice_,) = await quota.workloads("first")
    assert slice_["spec"]["podSets"][0]["count"] == 1
    job = await train.reaches(Phase.RUNNING, "first")
    assert (job.status.attempt, job.status.restarts.total, job.status.requeues) == (0, 0, 0)
    assert job.status.incident is None


async def test_job_whose_webhook_is_down_is_made_later(quota: Quota, train: Place, programs: Kueue) -> None:
    await programs.stop()
    try:
        await train.job()
        await told(train, "WorkersReady", "mjob.kb.io")
    finally:
        await programs.start()
    await train.reaches(Phase.RUNNING, timeout_s=90)


async def test_sync_pod_has_nothing_of_kueue(quota: Quota, train: Place) -> None:
    """It fetches code on no GPU, so no quota is asked for it, whatever its job asks for."""
    await train.job(labels=URGENT, volumes={"workspace": {"source": "zip"}})
    pod = await _sync_pod(train)
    assert not [key for key in pod["metadata"]["labels"] if key.startswith("kueue.x-k8s.io/")]
    assert "schedulingGates" not in pod["spec"]


async def test_sync_pod_in_the_default_queue_runs_by_quota(quota: Quota, train: Place) -> None:
    """Nothing that it could carry keeps it away. It has a Workload of its own, which asks for no GPU."""
    await quota.local_queue("default")
    await train.job(volumes={"workspace": {"source": "zip"}})
    name = (await _sync_pod(train))["metadata"]["name"]
    workload = await quota.admitted(name)
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"].get("nvidia.com/gpu", "0") == "0"

    async def placed() -> bool:
        live = await train.admin.get_raw(POD, name, train.namespace)
        return bool(live["spec"].get("nodeName"))

    await until(placed)


async def test_sync_pod_without_quota_names_gate_and_queue(quota: Quota, train: Place) -> None:
    """The default queue gives nothing for now; the job goes on once it does."""
    await quota.change(stopPolicy="Hold")
    await quota.local_queue("default")
    await train.job(volumes={"workspace": {"source": "git", "url": "https://git.example.com/a.git"}})
    said = await train.condition("WorkspaceReady", "SchedulingGated")
    assert "pod job-sync-0: held by scheduling gate kueue.x-k8s.io/admission" in said.message
    assert "which the controller of kueue.x-k8s.io removes when Kueue's LocalQueue default has quota" in said.message
    await quota.change(stopPolicy="None")
    await train.reaches(Phase.RUNNING, timeout_s=90)


async def _again(place: Place, name: str) -> TorchrunJob:
    """The job, once it runs again after it was queued a second time."""

    async def look() -> TorchrunJob | None:
        job = await place.admin.get(TORCHRUN_JOB, name, place.namespace)
        return job if (job.status.phase, job.status.requeues) == (Phase.RUNNING, 1) else None

    job = await until(look, timeout_s=90)
    assert job is not None
    return job


def _index(pod: dict[str, Any]) -> str:
    """A worker's number among those of its Job."""
    return str(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


async def _has_one_done(quota: Quota, job: str) -> bool:
    return bool((await quota.job(job))["status"].get("completedIndexes"))


async def _is_inactive(quota: Quota, job: str) -> bool:
    return (await quota.workload(job))["spec"]["active"] is False


async def _suspend(place: Place, suspend: bool) -> None:
    await place.admin.merge_patch(TORCHRUN_JOB, "job", {"spec": {"suspend": suspend}}, namespace=place.namespace)


async def _sync_pod(place: Place) -> dict[str, Any]:
    async def look() -> list[dict[str, Any]]:
        return list(await place.admin.list_raw(POD, namespace=place.namespace, labels="torchrun.ai/role=sync"))

    return (await until(look))[0]
