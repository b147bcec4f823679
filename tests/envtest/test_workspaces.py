"""How a job comes by its code, and what is said while it has none."""

from collections.abc import AsyncGenerator, Callable

import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place
from operators import background_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD, PVC
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.script import SYNC_MESSAGE

GIT = {"source": "git", "url": "https://git.example.com/team/code.git"}
BROKEN = "fetch: the program was stopped"
CODE = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "code"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    namespace = fresh_name("workspaces")

    def sync_of(job: str, *numbers: int) -> Callable[[Pod], bool]:
        names = {f"{job}-sync-{number}" for number in numbers}
        return lambda pod: pod.metadata.namespace == namespace and pod.metadata.name in names

    before = kubelet.script
    failing = Play(exit_code=137, messages={"fetch": BROKEN})
    kubelet.script = (
        before.when(sync_of("uploads", 0), Play(run_s=None, messages={"fetch": SYNC_MESSAGE}))
        .when(sync_of("never", 0, 1, 2), failing)
        .when(sync_of("second", 0), failing)
    )
    await create_namespace(admin, namespace)
    here = Place(admin, namespace)
    await here.queue()
    await here.queue("shared", storage={"workspace": {"accessModes": ["ReadWriteMany"]}})
    async with background_operator(operator_account, namespace):
        yield here
    kubelet.script = before
    await clear(admin, namespace)


async def test_a_job_waits_for_its_code_to_be_uploaded(place: Place, kubelet: ScriptedKubelet) -> None:
    await place.job("uploads", numNodes=1, volumes={"workspace": {"source": "zip"}})
    found = await place.condition("WorkspaceReady", "WaitingForUpload", "uploads")
    assert "pod uploads-sync-0 waits for the workspace to be uploaded: run `kubectl torchrun sync" in found.message

    async def running() -> bool:
        return (await place.admin.get(POD, "uploads-sync-0", place.namespace)).status.phase == "Running"

    await until(running)
    job = await place.reaches(Phase.SYNCING, "uploads")
    assert not await place.exists(JOB, "uploads")
    kubelet.end(place.namespace, "uploads-sync-0")
    job = await place.reaches(Phase.SUCCEEDED, "uploads")
    assert job.status.workspace is not None
    assert job.status.workspace.revision == "0123abc"


@pytest.mark.proves("TorchrunQueue.spec.storage.workspace.cacheClaimName")
async def test_a_queues_cache_is_mounted_once_it_is_there(place: Place) -> None:
    await place.queue("keeps", storage={"workspace": {"cacheClaimName": "kept"}})
    await place.job("cached", jobQueue="keeps", numNodes=1, volumes={"workspace": {"source": "zip"}})
    found = await place.condition("WorkspaceReady", "ClaimNotFound", "cached")
    assert "PersistentVolumeClaim kept does not exist; create it" in found.message
    assert not await place.exists(POD, "cached-sync-0")
    await place.admin.create(PVC, CODE | {"metadata": {"name": "kept"}}, place.namespace)
    await place.reaches(Phase.SUCCEEDED, "cached")
    pod = await place.admin.get_raw(POD, "cached-sync-0", place.namespace)
    (fetch,) = pod["spec"]["containers"]
    assert "--cache=/cache" in fetch["args"]
    assert {"name": "torchrun-cache", "mountPath": "/cache"} in fetch["volumeMounts"]


@pytest.mark.proves("TorchrunJob.spec.volumes.workspace.claimName")
async def test_existing_claim_is_used_once_it_is_there(place: Place) -> None:
    await place.job("existing", volumes={"workspace": {"source": "existing", "claimName": "code"}})
    found = await place.condition("WorkspaceReady", "ClaimNotFound", "existing")
    assert "PersistentVolumeClaim code does not exist; create it" in found.message
    await place.admin.create(PVC, CODE, place.namespace)
    await place.reaches(Phase.SUCCEEDED, "existing")
    assert not await place.exists(PVC, "existing-workspace")


async def test_a_fetch_that_failed_is_tried_again(place: Place) -> None:
    await place.job("second", numNodes=1, volumes={"workspace": GIT})
    await place.reaches(Phase.SUCCEEDED, "second")
    pods = await place.admin.list(
        POD, namespace=place.namespace, labels="torchrun-job-name=second,torchrun.ai/role=sync"
    )
    assert sorted(pod.metadata.name for pod in pods) == ["second-sync-0", "second-sync-1"]
    failed = [event for event in await place.events("second") if event.reason == "SyncFailed"]
    assert [(event.count, BROKEN in event.message) for event in failed] == [(1, True)]


async def test_a_fetch_that_fails_three_times_is_the_jobs_failure(place: Place) -> None:
    await place.job("never", numNodes=1, volumes={"workspace": GIT})
    job = await place.reaches(Phase.FAILED, "never")
    found = await place.condition("Failed", "WorkspaceSyncFailed", "never")
    assert BROKEN in found.message
    assert "kubectl logs never-sync-2" in found.message
    assert job.status.failure is not None
    assert (job.status.failure.pod, job.status.failure.exit_code) == ("never-sync-2", 137)
    assert not await place.exists(JOB, "never")


async def test_a_claim_that_cannot_serve_the_nodes_is_a_condition(place: Place) -> None:
    await place.queue("narrow", storage={"workspace": {"distribution": "copy"}})
    await place.job("narrow", jobQueue="narrow", volumes={"workspace": GIT})
    found = await place.condition("Accepted", "ImpossibleWorkspace", "narrow")
    assert (found.status, "ReadWriteMany" in found.message) == ("False", True)
    assert (await place.admin.get(TORCHRUN_JOB, "narrow", place.namespace)).status.phase == Phase.PENDING


async def test_workers_copy_from_a_claim_that_all_can_mount(place: Place) -> None:
    await place.job("copies", jobQueue="shared", volumes={"workspace": GIT})
    await place.reaches(Phase.SUCCEEDED, "copies")
    job = await place.admin.get_raw(JOB, "copies", place.namespace)
    (init,) = job["spec"]["template"]["spec"]["initContainers"]
    assert init["command"] == ["torchctl", "workspace"]
    assert init["args"][0] == "copy"


async def test_workers_pull_where_only_one_node_can_mount_the_claim(place: Place) -> None:
    await place.job("pulls", volumes={"workspace": GIT})
    await place.reaches(Phase.SUCCEEDED, "pulls")
    job = await place.admin.get_raw(JOB, "pulls", place.namespace)
    uid = (await place.admin.get(TORCHRUN_JOB, "pulls", place.namespace)).metadata.uid
    (init,) = job["spec"]["template"]["spec"]["initContainers"]
    assert init["args"][:2] == [
        "pull",
        f"--url=http://pulls-workspace.{place.namespace}.svc.cluster.local:8080/archive/{uid}",
    ]
    await place.gone(POD, "pulls-sync-0")
