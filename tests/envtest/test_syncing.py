"""How a sync pod ends on a real control plane: beside an injected sidecar, refused, unreachable, while suspended."""

from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place
from operators import background_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD
from torchctl.api.kube import Pod as RunningPod
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.kubelet import Part, Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.script import SYNC_MESSAGE

GIT = {"source": "git", "url": "https://git.example.com/team/code.git"}
NOT_FOUND = "fetch: cannot fetch https://git.example.com/team/code.git: there is no such repository"
AWAY = "fetch: cannot fetch https://git.example.com/team/code.git: the server cannot be reached"
PROXY = {"name": "istio-proxy", "image": "proxy:1"}
"""A container that never ends by itself, as a mesh injects it."""
INJECTED = {"storage": {"workspace": {"podTemplate": {"spec": {"containers": [PROXY]}}}}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    namespace = fresh_name("syncing")

    def sync_of(job: str, number: int) -> Callable[[Pod], bool]:
        key = (namespace, f"{job}-sync-{number}")
        return lambda pod: (pod.metadata.namespace, pod.metadata.name) == key

    before = kubelet.script
    proxy = {"istio-proxy": Part(run_s=None)}
    kubelet.script = (
        before.when(sync_of("beside", 0), Play(parts=proxy, messages={"fetch": SYNC_MESSAGE}))
        .when(sync_of("refused", 0), Play(exit_code=1, parts=proxy, messages={"fetch": NOT_FOUND}))
        .when(sync_of("away", 0), Play(exit_code=75, messages={"fetch": AWAY}))
        .when(sync_of("upload", 0), Play(run_s=None, messages={"fetch": SYNC_MESSAGE}))
    )
    await create_namespace(admin, namespace)
    here = Place(admin, namespace)
    await here.queue()
    await here.queue("injected", **INJECTED)
    async with background_operator(operator_account, namespace):
        yield here
    kubelet.script = before
    await clear(admin, namespace)


@pytest.mark.proves("TorchrunQueue.spec.storage.workspace.podTemplate")
async def test_sync_pod_with_a_sidecar_is_done_and_stopped(place: Place) -> None:
    await place.job("beside", jobQueue="injected", numNodes=1, volumes={"workspace": GIT})
    job = await place.reaches(Phase.SUCCEEDED, "beside")
    assert job.status.workspace is not None
    assert job.status.workspace.revision == "0123abc"
    await until(lambda: was_stopped(place, "beside-sync-0"))


async def test_a_refused_source_is_the_jobs_failure_at_once(place: Place) -> None:
    await place.job("refused", jobQueue="injected", numNodes=1, volumes={"workspace": GIT})
    await place.reaches(Phase.FAILED, "refused")
    found = await place.condition("Failed", "WorkspaceSyncFailed", "refused")
    assert NOT_FOUND in found.message
    await until(lambda: was_stopped(place, "refused-sync-0"))
    assert not await place.exists(POD, "refused-sync-1")


async def test_unreachable_source_is_tried_again_after_a_pause(place: Place) -> None:
    await place.job("away", numNodes=1, volumes={"workspace": GIT})
    found = await place.condition("WorkspaceReady", "SyncFailed", "away")
    assert AWAY in found.message
    assert not await place.exists(POD, "away-sync-1")
    await place.reaches(Phase.SUCCEEDED, "away")
    assert await place.exists(POD, "away-sync-1")


async def test_code_that_was_uploaded_while_suspended_is_run_after_it(place: Place, kubelet: ScriptedKubelet) -> None:
    upload = {"source": "zip", "timeoutSeconds": 1}
    await place.job("upload", numNodes=1, suspend=True, volumes={"workspace": upload})
    await place.condition("WorkspaceReady", "WaitingForUpload", "upload")
    pod = await until(lambda: running(place, "upload-sync-0"))
    assert pod is not None
    await until(lambda: is_older(pod, 2))
    await place.touch("upload")
    kubelet.end(place.namespace, "upload-sync-0")
    await place.condition("WorkspaceReady", "WorkspaceReady", "upload")
    assert not await place.exists(JOB, "upload")
    await place.admin.merge_patch(TORCHRUN_JOB, "upload", {"spec": {"suspend": False}}, namespace=place.namespace)
    await place.reaches(Phase.SUCCEEDED, "upload")


async def was_stopped(place: Place, name: str) -> bool:
    status = (await place.admin.get(POD, name, place.namespace)).status
    return (status.phase, status.reason) == ("Failed", "DeadlineExceeded")


async def running(place: Place, name: str) -> RunningPod | None:
    pod = await place.admin.get(POD, name, place.namespace)
    return pod if pod.status.phase == "Running" else None


async def is_older(pod: RunningPod, age_s: float) -> bool:
    assert pod.status.start_time is not None
    return (datetime.now(UTC) - pod.status.start_time).total_seconds() > age_s
