"""Volcano takes pods of a gang for a more important job: that is one incident, and no person's deletion is."""

from gangcluster import URGENT, workers
from jobs import Place
from waiting import until

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import POD
from torchctl.api.phases import Phase

WHOLE_NODES = {"gpus": 8}
VOLCANO = {"scheduler": "volcano"}


async def test_gang_that_volcano_breaks_by_one_pod_is_one_incident(place: Place) -> None:
    """One node is enough for the other job: what is left of the gang is taken down, and all start again later."""
    await place.queue(scheduling=VOLCANO, nodeResources=WHOLE_NODES)
    await place.job("first")
    await place.reaches(Phase.RUNNING, "first", timeout_s=60)
    await place.job("second", numNodes=1, priorityClassName=URGENT)
    await place.reaches(Phase.RUNNING, "second", timeout_s=90)
    assert await _restarts(place, "first") == {"Preempted": 1}
    await place.admin.delete(TORCHRUN_JOB, "second", namespace=place.namespace)
    await place.reaches(Phase.RUNNING, "first", timeout_s=90)
    job = await place.admin.get(TORCHRUN_JOB, "first", place.namespace)
    assert (job.status.attempt, dict(job.status.restarts.by_cause)) == (1, {"Preempted": 1})


async def test_a_pod_that_a_person_deletes_was_not_preempted(place: Place) -> None:
    await place.queue(scheduling=VOLCANO, nodeResources=WHOLE_NODES)
    await place.job()
    await place.reaches(Phase.RUNNING, timeout_s=60)
    pod = (await workers(place))[1]
    await place.admin.delete(POD, pod.metadata.name, namespace=place.namespace)
    assert await _restarts(place, "job") == {"Deleted": 1}


async def _restarts(place: Place, name: str) -> dict[str, int]:
    """The causes that are counted once the second attempt has begun."""

    async def look() -> TorchrunJob | None:
        job = await place.admin.get(TORCHRUN_JOB, name, place.namespace)
        return job if job.status.attempt >= 1 else None

    job = await until(look, timeout_s=90)
    assert job is not None
    return dict(job.status.restarts.by_cause)
