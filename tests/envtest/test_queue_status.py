"""What the status of a queue says of its jobs and of the spec that it is about; and a KAI Queue that it only names."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place, a_kai_queue
from operators import background_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import KAI_QUEUE, POD
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE, GpuCounts, JobCounts, QueueStatus
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod

NOWHERE = {"nodeSelector": {"disk": "none-has-this"}}
JOBS: dict[Phase, dict[str, Any]] = {
    Phase.PENDING: {"numNodes": None, "numGPUs": 3},
    Phase.SYNCING: {"numNodes": 1, "volumes": {"workspace": {"source": "zip"}}},
    Phase.QUEUED: NOWHERE,
    Phase.RUNNING: {},
    Phase.SUSPENDED: {"suspend": True},
    Phase.SUCCEEDED: {},
    Phase.FAILED: {"runPolicy": {"restartPolicy": "Never"}},
}
"""A job for each phase, of its name."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    """Where workers run until they are told to end, save those of the jobs that are to end."""
    here = fresh_name("queue-status")

    def here_and(job: str) -> Any:
        return lambda pod: stays(pod) and pod.metadata.labels.get("torchrun.ai/job-name") == job

    def stays(pod: Pod) -> bool:
        return pod.metadata.namespace == here

    before = kubelet.script
    kubelet.script = (
        before.when(stays, Play(run_s=None))
        .when(here_and("succeeded"), Play())
        .when(here_and("succeeded-keeps"), Play())
        .when(here_and("succeeded-clears"), Play())
        .when(here_and("failed"), Play(exit_code=3))
    )
    await create_namespace(admin, here)
    async with background_operator(operator_account, here):
        yield Place(admin, here)
    kubelet.script = before
    await clear(admin, here)


async def status(place: Place, name: str) -> QueueStatus:
    return (await place.admin.get(TORCHRUN_QUEUE, name, place.namespace)).status


@pytest.mark.proves(
    "TorchrunQueue.status.jobs.pending",
    "TorchrunQueue.status.jobs.syncing",
    "TorchrunQueue.status.jobs.queued",
    "TorchrunQueue.status.jobs.running",
    "TorchrunQueue.status.jobs.suspended",
    "TorchrunQueue.status.jobs.succeeded",
    "TorchrunQueue.status.jobs.failed",
    "TorchrunQueue.status.gpus.requested",
    "TorchrunQueue.status.gpus.running",
)
async def test_queue_counts_its_jobs_by_phase_and_their_gpus(place: Place) -> None:
    await place.queue("counts", kaiQueue=f"{place.namespace}-counts", nodeResources={"gpus": 2})
    for phase, spec in JOBS.items():
        await place.job(phase.lower(), **{"jobQueue": "counts", **spec})
    for phase in JOBS:
        await place.reaches(phase, phase.lower())

    # Two GPUs of the one that syncs, four of those that wait and run. One that is suspended asks for none.
    expected = JobCounts(1, 1, 1, 1, 1, 1, 1), GpuCounts(requested=10, running=4)

    async def counted() -> bool:
        found = await status(place, "counts")
        return (found.jobs, found.gpus) == expected

    await until(counted)


@pytest.mark.proves("TorchrunQueue.status.keptWorkspaces", "TorchrunQueue.spec.runPolicy.ttlSecondsAfterFinished")
async def test_workspaces_that_finished_jobs_keep_are_counted(place: Place) -> None:
    """One job is kept for ever, which is the default; the other one's queue has a time to live for every job."""

    async def kept(name: str) -> int:
        return (await status(place, name)).kept_workspaces

    code = {"workspace": {"source": "git", "url": "https://git.example.com/a"}}
    await place.queue("keeps")
    await place.queue("clears", runPolicy={"ttlSecondsAfterFinished": 0})
    for queue in ("keeps", "clears"):
        await place.job(f"succeeded-{queue}", jobQueue=queue, numNodes=1, volumes=code)
    await place.gone(TORCHRUN_JOB, "succeeded-clears", timeout_s=60)
    await place.reaches(Phase.SUCCEEDED, "succeeded-keeps", timeout_s=60)

    async def counted() -> bool:
        return (await kept("keeps"), await kept("clears")) == (1, 0)

    await until(counted)
    await place.admin.delete(TORCHRUN_JOB, "succeeded-keeps", namespace=place.namespace)

    async def cleared() -> bool:
        return await kept("keeps") == 0

    await until(cleared)


@pytest.mark.proves(
    "TorchrunQueue.status.observedGeneration",
    "TorchrunQueue.status.conditions",
    "TorchrunQueue.status.templateHash",
)
async def test_status_says_which_spec_it_is_about(place: Place) -> None:
    await place.queue("edited")
    await place.condition("Ready", "Ready", "edited", kind=TORCHRUN_QUEUE)
    first = await status(place, "edited")
    assert (first.observed_generation, {condition.observed_generation for condition in first.conditions}) == (1, {1})
    body = {"spec": {"image": "trainer:2"}}
    await place.admin.merge_patch(TORCHRUN_QUEUE, "edited", body, namespace=place.namespace)

    async def looked_at() -> bool:
        return (await status(place, "edited")).observed_generation == 2

    await until(looked_at)
    second = await status(place, "edited")
    assert {condition.observed_generation for condition in second.conditions} == {2}
    assert "" not in (first.template_hash, second.template_hash)
    assert first.template_hash != second.template_hash


@pytest.mark.proves("TorchrunQueue.spec.kaiQueuePolicy")
async def test_a_kai_queue_by_reference_is_used_and_never_written(place: Place) -> None:
    name = f"{place.namespace}-theirs"
    await place.admin.create(KAI_QUEUE, a_kai_queue(name))
    before = await place.admin.get_raw(KAI_QUEUE, name)
    await place.queue("refers", kaiQueue=name, kaiQueuePolicy="Reference", kaiPriority=3)
    await place.job("refers", jobQueue="refers", numNodes=1)
    await place.reaches(Phase.RUNNING, "refers")
    (pod,) = await place.admin.list(POD, namespace=place.namespace, labels="torchrun-job-name=refers")
    assert pod.metadata.labels["kai.scheduler/queue"] == name
    assert await place.admin.get_raw(KAI_QUEUE, name) == before
    await place.admin.delete(KAI_QUEUE, name)
