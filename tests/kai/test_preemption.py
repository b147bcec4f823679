"""KAI takes the place of a whole gang for a more important one: that is one incident, and no person's deletion is."""

import pytest
from gangcluster import URGENT, workers
from jobs import Place
from waiting import until

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import KAI_PODGROUP, POD, KaiPodGroup, Pod
from torchctl.api.names import pod_group
from torchctl.api.phases import Phase
from torchctl.controllers.gangs.evictions import evicted_around
from torchctl.controllers.job.pods import told_at

pytestmark = pytest.mark.usefixtures("podgrouper")

WHOLE_NODES = {"gpus": 8}


async def test_preempted_gang_is_one_incident_and_starts_again_later(place: Place, queue: str) -> None:
    await place.queue(kaiQueue=queue, nodeResources=WHOLE_NODES)
    await place.job("first")
    first = await place.reaches(Phase.RUNNING, "first", timeout_s=60)
    await place.job("second", priorityClassName=URGENT)
    await until(lambda: _is_preempted(place, first), timeout_s=60)
    await place.reaches(Phase.RUNNING, "second", timeout_s=60)
    assert await _restarts(place, "first", 1) == {"Preempted": 1}
    await place.admin.delete(TORCHRUN_JOB, "second", namespace=place.namespace)
    await place.reaches(Phase.RUNNING, "first", timeout_s=90)
    job = await place.admin.get(TORCHRUN_JOB, "first", place.namespace)
    assert (job.status.attempt, dict(job.status.restarts.by_cause)) == (1, {"Preempted": 1})


async def test_gang_whose_gpus_are_reclaimed_was_preempted(place: Place, queue: str) -> None:
    nothing, all_ = ({"gpu": {"quota": quota}} for quota in (0, 16))
    await place.queue("lends", kaiQueue=f"{queue}-lends", kaiResources=nothing, nodeResources=WHOLE_NODES)
    await place.queue("owns", kaiQueue=f"{queue}-owns", kaiResources=all_, nodeResources=WHOLE_NODES)
    await place.job("first", jobQueue="lends")
    await place.reaches(Phase.RUNNING, "first", timeout_s=60)
    await place.job("second", jobQueue="owns", numNodes=1)
    assert await _restarts(place, "first", 1) == {"Preempted": 1}


async def test_a_pod_that_a_person_deletes_was_not_preempted(place: Place, queue: str) -> None:
    await place.queue(kaiQueue=queue, nodeResources=WHOLE_NODES)
    await place.job()
    job = await place.reaches(Phase.RUNNING, timeout_s=60)
    pod = (await workers(place))[1]
    await place.admin.delete(POD, pod.metadata.name, namespace=place.namespace)
    assert await _restarts(place, "job", 1) == {"Deleted": 1}
    assert not _evicted(pod, await _group(place, job))


async def _restarts(place: Place, name: str, attempt: int) -> dict[str, int]:
    """The causes that are counted once that attempt has begun."""

    async def look() -> TorchrunJob | None:
        job = await place.admin.get(TORCHRUN_JOB, name, place.namespace)
        return job if job.status.attempt >= attempt else None

    job = await until(look, timeout_s=90)
    assert job is not None
    return dict(job.status.restarts.by_cause)


async def _is_preempted(place: Place, job: TorchrunJob) -> list[Pod]:
    """The pods of the first attempt, once all of them are on their way out by KAI's doing."""
    pods, group = await workers(place, job.metadata.name), await _group(place, job)
    return pods if pods and all(_evicted(pod, group) for pod in pods) else []


def _evicted(pod: Pod, group: KaiPodGroup) -> bool:
    told = told_at(pod)
    return told is not None and evicted_around(group, told)


async def _group(place: Place, job: TorchrunJob) -> KaiPodGroup:
    name = pod_group(job.metadata.name, job.metadata.uid)
    return await place.admin.get(KAI_PODGROUP, name, place.namespace)
