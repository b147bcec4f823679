"""What the status of a job says while it runs, when it has ended, and when it cannot go on."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place
from operators import background_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB, Failure, NodeCounts, WorkerCounts, WorkspaceStatus
from torchctl.api.kube import POD
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.conditions import find
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod

GIT = {"source": "git", "url": "https://git.example.com/team/code.git"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    """Where workers run until they are told to end, save those of `fails`."""
    here = fresh_name("status")

    def works(pod: Pod) -> bool:
        return pod.metadata.namespace == here and pod.metadata.labels.get("torchrun.ai/role") == "worker"

    def fails(pod: Pod) -> bool:
        return works(pod) and pod.metadata.name.startswith("fails-1-")

    before = kubelet.script
    kubelet.script = before.when(works, Play(run_s=None)).when(fails, Play(exit_code=3, log="loss is nan"))
    await create_namespace(admin, here)
    place = Place(admin, here)
    await place.queue(nodeResources={"gpus": 2})
    async with background_operator(operator_account, here):
        yield place
    kubelet.script = before
    await clear(admin, here)


async def end_workers(place: Place, kubelet: ScriptedKubelet, job: str) -> None:
    for pod in await place.admin.list(
        POD, namespace=place.namespace, labels=f"torchrun-job-name={job},torchrun.ai/role=worker"
    ):
        kubelet.end(place.namespace, pod.metadata.name)


@pytest.mark.proves(
    "TorchrunJob.status.phase",
    "TorchrunJob.status.conditions",
    "TorchrunJob.status.observedGeneration",
    "TorchrunJob.status.nodes.desired",
    "TorchrunJob.status.nodes.ready",
    "TorchrunJob.status.workersStatus",
    "TorchrunJob.status.workers.ready",
    "TorchrunJob.status.workers.running",
    "TorchrunJob.status.workers.succeeded",
    "TorchrunJob.status.masterEndpoint",
    "TorchrunJob.status.rendezvousID",
    "TorchrunJob.status.startTime",
    "TorchrunJob.status.completionTime",
    "TorchrunJob.status.workspace.revision",
    "TorchrunJob.status.workspace.source",
    "TorchrunJob.status.workspace.digest",
    "TorchrunJob.status.workspace.bytes",
    "TorchrunJob.status.workspace.files",
)
async def test_status_shows_each_field_of_a_job_that_succeeds(place: Place, kubelet: ScriptedKubelet) -> None:
    await place.job("lives", volumes={"workspace": GIT})
    job = await place.reaches(Phase.RUNNING, "lives")
    now, status = datetime.now(UTC), job.status
    assert status.nodes == NodeCounts(desired=2, ready=2)
    assert status.workers == WorkerCounts(ready=2, running=2)
    assert (status.workers_status, status.gpus, status.observed_generation) == ("2/2 running", 4, 1)
    assert status.master_endpoint == f"lives-0.lives.{place.namespace}.svc.cluster.local:29500"
    assert status.rendezvous_id == f"{job.metadata.uid}-0"
    assert status.workspace == WorkspaceStatus(
        revision="0123abc", source="git", digest="sha256:00", bytes=1024, files=3
    )
    assert status.start_time is not None
    assert now - timedelta(seconds=60) <= status.start_time <= now
    assert status.completion_time is None
    ready = find(status.conditions, "WorkersReady")
    assert ready is not None
    assert (ready.status, ready.message) == ("True", "all 2 workers of Job lives are ready")
    await end_workers(place, kubelet, "lives")
    status = (await place.reaches(Phase.SUCCEEDED, "lives")).status
    assert (status.workers_status, status.workers.succeeded) == ("2/2 succeeded", 2)
    assert status.start_time is not None
    assert status.completion_time is not None
    assert status.start_time <= status.completion_time <= datetime.now(UTC)


@pytest.mark.proves(
    "TorchrunJob.status.failure.pod",
    "TorchrunJob.status.failure.node",
    "TorchrunJob.status.failure.rank",
    "TorchrunJob.status.failure.exitCode",
    "TorchrunJob.status.failure.reason",
    "TorchrunJob.status.failure.message",
    "TorchrunJob.status.workers.failed",
)
async def test_a_job_that_fails_describes_the_pod_that_failed_first(place: Place) -> None:
    await place.job("fails", runPolicy={"restartPolicy": "Never"}, nprocPerNode=1)
    status = (await place.reaches(Phase.FAILED, "fails")).status
    (pod,) = [
        pod
        for pod in await place.admin.list(POD, namespace=place.namespace, labels="torchrun-job-name=fails")
        if pod.metadata.name.startswith("fails-1-")
    ]
    expected = Failure(pod.metadata.name, pod.spec.node_name, 1, 3, "Error", "loss is nan")
    assert status.failure == expected
    assert status.workers.failed in (1, 2), "the other one is stopped"


@pytest.mark.proves("TorchrunJob.status.workers.pending")
async def test_pods_that_wait_for_a_node_are_pending(place: Place) -> None:
    await place.job("waits", nodeSelector={"disk": "none-has-this"})
    await place.condition("WorkersReady", "Unschedulable", "waits")

    async def both_wait() -> bool:
        """Counts follow within --job-status-period."""
        job = await place.admin.get(TORCHRUN_JOB, "waits", place.namespace)
        return job.status.workers == WorkerCounts(pending=2)

    await until(both_wait)
