"""What somebody deletes or changes by hand, and what the operator makes of it, also when it was not there."""

from collections.abc import AsyncGenerator

import pytest_asyncio
from jobs import Place, a_kai_queue
from operators import running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, KAI_QUEUE, POD, SERVICE
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import NAMESPACE
from torchctl.testing.nodekinds import Pod


def runs_on(pod: Pod) -> bool:
    return pod.metadata.labels.get("torchrun.ai/job-name", "").startswith("long")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(operator_account: Connection, kubelet: ScriptedKubelet) -> AsyncGenerator[Connection]:
    """Nodes on which the workers of jobs called `long...` run until they are told to end."""
    before = kubelet.script
    kubelet.script = before.when(runs_on, Play(run_s=None))
    yield operator_account
    kubelet.script = before


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(cluster: Connection, place: Place) -> Place:
    await place.queue()
    return place


async def settled(place: Place, name: str) -> None:
    """Returns when all that was to be done about a job is done: one that was touched later is through."""
    await place.touch(name)
    await place.job(f"after-{name}", numNodes=1)
    await place.reaches(Phase.SUCCEEDED, f"after-{name}")


async def test_finished_job_does_not_recreate_its_deleted_child(place: Place) -> None:
    await place.job("done")
    before = await place.reaches(Phase.SUCCEEDED, "done")
    await place.admin.delete(JOB, "done", namespace=place.namespace)
    await place.gone(JOB, "done")
    await settled(place, "done")
    assert not await place.exists(JOB, "done")
    assert (await place.admin.get(TORCHRUN_JOB, "done", place.namespace)).status == before.status


async def test_a_running_job_whose_child_is_deleted_has_failed(place: Place) -> None:
    await place.job("long-lost")
    await place.reaches(Phase.RUNNING, "long-lost")
    await place.admin.delete(JOB, "long-lost", namespace=place.namespace)
    job = await place.reaches(Phase.FAILED, "long-lost")
    assert job.status.failure is not None
    await place.gone(JOB, "long-lost")
    await settled(place, "long-lost")
    assert not await place.exists(JOB, "long-lost")
    found = next(condition for condition in job.status.conditions if condition.type == "Failed")
    assert (found.reason, "submit it again" in found.message) == ("JobDisappeared", True)


async def test_a_service_that_is_deleted_or_changed_is_put_right(place: Place) -> None:
    await place.job("long-served")
    await place.reaches(Phase.RUNNING, "long-served")
    service = await place.admin.get_raw(SERVICE, "long-served", place.namespace)
    before = (service["metadata"]["labels"], service["spec"]["selector"])
    await place.admin.delete(SERVICE, "long-served", namespace=place.namespace)

    async def restored() -> bool:
        if not await place.exists(SERVICE, "long-served"):
            return False
        live = await place.admin.get_raw(SERVICE, "long-served", place.namespace)
        return (live["metadata"]["labels"], live["spec"]["selector"]) == before

    await until(restored)
    for patch in (
        {"metadata": {"labels": {"torchrun.ai/role": None}}},
        {"metadata": {"labels": {"torchrun-job-name": "another"}}},
        {"spec": {"selector": {"torchrun.ai/role": "nobody"}}},
    ):
        await place.admin.merge_patch(SERVICE, "long-served", patch, namespace=place.namespace)
        await until(restored)


async def test_a_queue_takes_its_own_kai_queue_with_it(place: Place) -> None:
    name = f"{place.namespace}-own"
    await place.queue("own", kaiQueue=name)
    await place.condition("Ready", "Ready", "own", kind=TORCHRUN_QUEUE)
    await place.admin.delete(TORCHRUN_QUEUE, "own", namespace=place.namespace)
    await place.gone(TORCHRUN_QUEUE, "own")
    assert not await place.exists(KAI_QUEUE, name)


async def test_a_queue_leaves_a_kai_queue_of_others_behind(place: Place) -> None:
    name = f"{place.namespace}-theirs"
    await place.admin.create(KAI_QUEUE, a_kai_queue(name))
    await place.queue("guest", kaiQueue=name)
    await place.condition("KaiQueueReady", "Conflict", "guest", kind=TORCHRUN_QUEUE)
    before = await place.admin.get(KAI_QUEUE, name)
    await place.admin.delete(TORCHRUN_QUEUE, "guest", namespace=place.namespace)
    await place.gone(TORCHRUN_QUEUE, "guest")
    assert await place.admin.get(KAI_QUEUE, name) == before
    await place.admin.delete(KAI_QUEUE, name)


async def test_a_queue_keeps_its_kai_queue_for_its_unfinished_jobs(place: Place, kubelet: ScriptedKubelet) -> None:
    name = f"{place.namespace}-busy"
    await place.queue("busy", kaiQueue=name)
    await place.job("long-busy", jobQueue="busy", numNodes=1)
    await place.reaches(Phase.RUNNING, "long-busy")
    await place.admin.delete(TORCHRUN_QUEUE, "busy", namespace=place.namespace)
    found = await place.condition("KaiQueueReady", "Deleting", "busy", kind=TORCHRUN_QUEUE)
    assert "long-busy" in found.message
    assert await place.exists(KAI_QUEUE, name)
    (worker,) = await place.admin.list(POD, namespace=place.namespace, labels="torchrun-job-name=long-busy")
    kubelet.end(place.namespace, worker.metadata.name)
    await place.reaches(Phase.SUCCEEDED, "long-busy")
    await place.gone(TORCHRUN_QUEUE, "busy")
    assert not await place.exists(KAI_QUEUE, name)


async def test_deletions_during_a_downtime_are_cleaned_up_afterwards(
    cluster: Connection, admin: Client, namespace: str
) -> None:
    place, name, theirs = Place(admin, namespace), f"{namespace}-down", f"{namespace}-theirs"
    await admin.create(KAI_QUEUE, a_kai_queue(theirs))
    await place.queue(kaiQueue=name)
    await place.queue("guest", kaiQueue=theirs)
    await place.job("long-down", numNodes=1)
    async with running_operator(cluster, namespace):
        await place.reaches(Phase.RUNNING, "long-down")
        await place.condition("KaiQueueReady", "Conflict", "guest", kind=TORCHRUN_QUEUE)
    await admin.delete(TORCHRUN_QUEUE, "queue", namespace=namespace)
    await admin.delete(TORCHRUN_QUEUE, "guest", namespace=namespace)
    await admin.delete(TORCHRUN_JOB, "long-down", namespace=namespace)
    await place.gone(TORCHRUN_JOB, "long-down")
    assert await place.exists(KAI_QUEUE, name)
    async with running_operator(cluster, namespace):
        await place.gone(TORCHRUN_QUEUE, "queue")
        await place.gone(TORCHRUN_QUEUE, "guest")
    assert not await place.exists(KAI_QUEUE, name)
    assert await place.exists(KAI_QUEUE, theirs)
    await admin.delete(KAI_QUEUE, theirs)


async def test_a_namespace_goes_with_all_that_is_in_it(
    control_plane: ControlPlane, cluster: Connection, admin: Client, namespace: str
) -> None:
    place, name = Place(admin, namespace), f"{namespace}-kai"
    await place.queue(kaiQueue=name, storage={"workspace": {"enabled": True}})
    await place.job("long-gone")
    async with running_operator(cluster, namespace):
        await place.reaches(Phase.RUNNING, "long-gone")
        await admin.delete(NAMESPACE, namespace)
        await place.gone(NAMESPACE, namespace, timeout_s=60)
        assert not await place.exists(KAI_QUEUE, name)
