"""Volumes on the real control plane: classes that wait, claims that stay, revisions that follow, time that is over."""

import functools
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from jobs import Place
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD, PVC, PersistentVolumeClaim
from torchctl.api.labels import JOB_NAME, ROLE, ROLE_SYNC, ROLE_WORKER, WORKSPACE_REVISION
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import fresh_name
from torchctl.testing.nodekinds import STORAGE_CLASS, Pod
from torchctl.testing.volumes import PROVISIONER, SELECTED_NODE

pytestmark = pytest.mark.usefixtures("own_script")

GIT = {"source": "git", "url": "https://git.example.com/team/code.git"}
FOR_EVER = Play(run_s=None)
CHECKPOINTS = {"enabled": True, "size": "1Gi"}
COLLECTED_S = 90.0
"""The garbage collector hears of new kinds every 30 s."""


def a_class(name: str, provisioner: str, mode: str) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def classes(admin: Client) -> AsyncGenerator[dict[str, str]]:
    """A class that waits for the first consumer, and one of whose provisioner nobody has heard."""
    names = {"waits": fresh_name("waits"), "nobody": fresh_name("nobody")}
    await admin.create(STORAGE_CLASS, a_class(names["waits"], PROVISIONER, "WaitForFirstConsumer"))
    await admin.create(STORAGE_CLASS, a_class(names["nobody"], "nobody.example.com/none", "Immediate"))
    yield names
    for name in names.values():
        await admin.delete(STORAGE_CLASS, name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(kubelet: ScriptedKubelet, place: Place) -> Place:
    await place.queue()
    await place.queue("keeps", storage={"checkpoints": CHECKPOINTS})
    return place


def of_job(pod: Pod, job: str, role: str) -> bool:
    return pod.metadata.labels.get(JOB_NAME) == job and pod.metadata.labels.get(ROLE) == role


def plays(kubelet: ScriptedKubelet, job: str, role: str, play: Play) -> None:
    kubelet.script = kubelet.script.when(functools.partial(of_job, job=job, role=role), play)


async def claim(place: Place, name: str) -> PersistentVolumeClaim:
    return await place.admin.get(PVC, name, place.namespace)


async def deleted(place: Place, name: str) -> None:
    """The job is gone, and what it owned with it."""
    await place.admin.delete(TORCHRUN_JOB, name, namespace=place.namespace)
    await place.gone(TORCHRUN_JOB, name)


async def sync_pod(place: Place, name: str) -> dict[str, Any]:
    return await place.admin.get_raw(POD, name, place.namespace)


def fetch_args(pod: dict[str, Any]) -> list[str]:
    every = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    return next(list(container["args"]) for container in every if container["name"] == "fetch")


class TestWaitForFirstConsumer:
    @pytest.mark.proves("TorchrunQueue.spec.storage.workspace.storageClass")
    @pytest.mark.parametrize("nodes", [1, 2])
    async def test_the_sync_pod_is_the_first_consumer_of_the_workspace(
        self, place: Place, classes: dict[str, str], nodes: int
    ) -> None:
        name = f"first-{nodes}"
        await place.queue(name, storage={"workspace": {"storageClass": classes["waits"]}})
        await place.job(name, jobQueue=name, numNodes=nodes, volumes={"workspace": GIT})
        await place.reaches(Phase.SUCCEEDED, name)
        bound = await claim(place, f"{name}-workspace")
        assert bound.status.phase == "Bound"
        assert bound.metadata.annotations[SELECTED_NODE]

    @pytest.mark.proves("TorchrunQueue.spec.storage.checkpoints.storageClass")
    async def test_a_worker_is_the_first_consumer_of_the_checkpoints(
        self, place: Place, classes: dict[str, str]
    ) -> None:
        kept = CHECKPOINTS | {"storageClass": classes["waits"]}
        await place.queue("first-kept", storage={"checkpoints": kept})
        await place.job("first-kept", jobQueue="first-kept")
        await place.reaches(Phase.SUCCEEDED, "first-kept")
        assert (await claim(place, "first-kept-checkpoints")).status.phase == "Bound"


class TestTime:
    async def test_a_claim_that_nobody_provisions_is_waited_for_and_named(
        self, place: Place, classes: dict[str, str]
    ) -> None:
        await place.queue("nobody", storage={"workspace": {"storageClass": classes["nobody"]}})
        await place.job("unbound", jobQueue="nobody", volumes={"workspace": GIT | {"timeoutSeconds": 1}})

        async def named() -> bool:
            found = await place.condition("WorkspaceReady", "Syncing", "unbound")
            return "pod unbound-sync-0 waits for its PersistentVolumeClaim to be bound" in found.message

        async def is_old() -> bool:
            made = (await place.admin.get(POD, "unbound-sync-0", place.namespace)).metadata.creation_timestamp
            return made is not None and datetime.now(UTC) - made > timedelta(seconds=2)

        await until(named)
        await until(is_old)
        await place.touch("unbound")
        assert await named()
        assert (await place.reaches(Phase.SYNCING, "unbound")).status.failure is None
        await deleted(place, "unbound")

    @pytest.mark.proves("TorchrunJob.spec.volumes.workspace.timeoutSeconds")
    async def test_upload_that_never_comes_is_a_workspace_timeout(self, place: Place, kubelet: ScriptedKubelet) -> None:
        plays(kubelet, "no-upload", ROLE_SYNC, FOR_EVER)
        await place.job("no-upload", numNodes=1, volumes={"workspace": {"source": "zip", "timeoutSeconds": 2}})
        job = await place.reaches(Phase.FAILED, "no-upload")
        found = await place.condition("Failed", "WorkspaceTimeout", "no-upload")
        assert "not there after 2 s (volumes.workspace.timeoutSeconds)" in found.message
        assert job.status.failure is not None
        assert (job.status.failure.pod, job.status.failure.reason) == ("no-upload-sync-0", "WorkspaceTimeout")
        assert not await place.exists(JOB, "no-upload")
        await place.gone(POD, "no-upload-sync-0")

        async def told() -> bool:
            events = await place.events("no-upload")
            return ("Warning", "WorkspaceTimeout") in [(event.type, event.reason) for event in events]

        await until(told)


class TestCheckpoints:
    @pytest.mark.proves("TorchrunQueue.spec.storage.checkpoints.retain", "TorchrunQueue.spec.storage.checkpoints.size")
    async def test_job_finds_the_checkpoints_of_its_predecessor(self, place: Place) -> None:
        """The earlier job had the same name."""
        workspace = {"volumes": {"workspace": GIT}}
        await place.job("again", jobQueue="keeps", **workspace)
        first = await place.reaches(Phase.SUCCEEDED, "again")
        left = await claim(place, "again-checkpoints")
        assert left.metadata.owner_references == ()
        await deleted(place, "again")
        await place.gone(PVC, "again-workspace", timeout_s=COLLECTED_S)
        assert (await claim(place, "again-checkpoints")).metadata.uid == left.metadata.uid
        more = {"checkpoints": {"size": "5Gi", "accessModes": ["ReadWriteMany"], "retain": False}}
        await place.job("again", jobQueue="keeps", volumes=workspace["volumes"] | more)
        second = await place.reaches(Phase.SUCCEEDED, "again")
        assert second.metadata.uid != first.metadata.uid
        found = await claim(place, "again-checkpoints")
        assert (found.metadata.uid, found.metadata.owner_references) == (left.metadata.uid, ())
        assert found.spec["accessModes"] == ["ReadWriteOnce"]
        job = await place.admin.get_raw(JOB, "again", place.namespace)
        volumes = {volume["name"]: volume for volume in job["spec"]["template"]["spec"]["volumes"]}
        named = {"claimName": "again-checkpoints"}
        assert volumes["torchrun-checkpoints"]["persistentVolumeClaim"] == named
        await deleted(place, "again")
        assert (await claim(place, "again-checkpoints")).metadata.deletion_timestamp is None

    @pytest.mark.proves("TorchrunJob.spec.volumes.checkpoints.retain")
    async def test_what_is_not_retained_goes_with_its_job(self, place: Place) -> None:
        await place.job("goes", jobQueue="keeps", volumes={"checkpoints": {"retain": False}})
        await place.reaches(Phase.SUCCEEDED, "goes")
        assert [ref.uid for ref in (await claim(place, "goes-checkpoints")).metadata.owner_references]
        await deleted(place, "goes")
        await place.gone(PVC, "goes-checkpoints", timeout_s=COLLECTED_S)

    @pytest.mark.proves("TorchrunJob.spec.volumes.checkpoints.claimName")
    async def test_shared_claim_is_mounted_by_jobs_and_outlives_them(self, place: Place) -> None:
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"}, "spec": spec}
        await place.admin.create(PVC, body, place.namespace)
        mount = {"claimName": "shared", "mountPath": "/models"}
        for name in ("shares-1", "shares-2"):
            await place.job(name, jobQueue="keeps", volumes={"checkpoints": mount})
        for name in ("shares-1", "shares-2"):
            await place.reaches(Phase.SUCCEEDED, name)
            pod = (await place.admin.get_raw(JOB, name, place.namespace))["spec"]["template"]["spec"]
            claims = {one["name"]: one.get("persistentVolumeClaim") for one in pod["volumes"]}
            (trainer,) = pod["containers"]
            mounted = {one["mountPath"]: claims[one["name"]] for one in trainer["volumeMounts"]}
            assert mounted["/models"] == {"claimName": "shared"}
            said = {one["name"]: one.get("value") for one in trainer["env"]}
            assert said["TORCHRUN_CHECKPOINT_DIR"] == "/models"
            assert not await place.exists(PVC, f"{name}-checkpoints")
            await deleted(place, name)
        kept = await claim(place, "shared")
        assert (kept.metadata.deletion_timestamp, kept.metadata.owner_references) == (None, ())

    async def test_ttl_removes_the_workspace_and_keeps_the_checkpoints(self, place: Place) -> None:
        policy = {"ttlSecondsAfterFinished": 1}
        await place.job("expires", jobQueue="keeps", runPolicy=policy, volumes={"workspace": GIT})
        await place.gone(TORCHRUN_JOB, "expires")
        await place.gone(PVC, "expires-workspace", timeout_s=COLLECTED_S)
        assert (await claim(place, "expires-checkpoints")).metadata.deletion_timestamp is None

    async def test_checkpoints_on_one_node_are_accepted_with_a_warning(self, place: Place) -> None:
        await place.job("spread", jobQueue="keeps", numNodes=3)
        found = await place.condition("Accepted", "CheckpointsOnOneNode", "spread")
        assert found.status == "True"
        assert "spread-checkpoints is ReadWriteOnce and the job has 3 pods" in found.message
        await place.reaches(Phase.SUCCEEDED, "spread")
        warned = [event for event in await place.events("spread") if event.reason == "CheckpointsOnOneNode"]
        assert [(event.type, event.count) for event in warned] == [("Warning", 1)]


class TestRevisions:
    async def asks_for(self, place: Place, name: str, revision: str) -> None:
        patch = {"spec": {"volumes": {"workspace": {"revision": revision}}}}
        await place.admin.merge_patch(TORCHRUN_JOB, name, patch, namespace=place.namespace)

    @pytest.mark.proves(
        "TorchrunJob.spec.volumes.workspace.revision",
        "TorchrunJob.status.workspace.requested",
        "TorchrunJob.status.workspace.pod",
    )
    @pytest.mark.parametrize("nodes", [1, 2])
    async def test_new_revision_of_the_workspace_follows_with_the_next_attempt(
        self, place: Place, kubelet: ScriptedKubelet, nodes: int
    ) -> None:
        name = f"revised-{nodes}"
        plays(kubelet, name, ROLE_WORKER, FOR_EVER)
        await place.job(name, numNodes=nodes, volumes={"workspace": GIT})
        await place.reaches(Phase.RUNNING, name)
        before = await workers(place, name)
        await self.asks_for(place, name, "v2")

        async def told() -> bool:
            found = await place.condition("WorkspaceReady", "WorkspaceReady", name)
            return found.message.endswith("; revision v2 follows with the next attempt")

        await until(told)
        assert await workers(place, name) == before
        assert not await place.exists(POD, f"{name}-sync-1")
        kubelet.end(place.namespace, min(before), exit_code=1)
        job = await place.in_attempt(1, name)
        pod = await sync_pod(place, f"{name}-sync-1")
        assert "--revision=v2" in fetch_args(pod)
        assert job.status.workspace is not None
        assert (job.status.workspace.requested, job.status.workspace.pod) == ("v2", f"{name}-sync-1")
        assert job.status.workspace.digest
        made = (await place.admin.get(JOB, f"{name}-r1", place.namespace)).metadata.creation_timestamp
        assert made is not None
        assert pod["metadata"]["creationTimestamp"] <= made.strftime("%Y-%m-%dT%H:%M:%SZ")
        if nodes == 2:
            await place.gone(POD, f"{name}-sync-0")
        await deleted(place, name)

    async def test_revision_requested_during_the_first_sync_replaces_the_first(
        self, place: Place, kubelet: ScriptedKubelet
    ) -> None:
        plays(kubelet, "early", ROLE_SYNC, FOR_EVER)
        await place.job("early", numNodes=1, volumes={"workspace": GIT})

        async def running(revision: str) -> str:
            """The only sync pod that is there and not on its way out, if it runs and was asked for that."""
            labels = f"{JOB_NAME}=early,{ROLE}={ROLE_SYNC}"
            found = await place.admin.list(POD, namespace=place.namespace, labels=labels)
            asked = [pod.metadata.annotations.get(WORKSPACE_REVISION, "") for pod in found]
            (state,) = {pod.status.phase for pod in found} if len(found) == 1 else ("",)
            return found[0].metadata.name if (asked, state) == ([revision], "Running") else ""

        await until(lambda: running(""))
        await self.asks_for(place, "early", "v2")
        name = await until(lambda: running("v2"))
        assert "--revision=v2" in fetch_args(await sync_pod(place, name))
        assert not await place.exists(JOB, "early")
        kubelet.end(place.namespace, name)
        job = await place.reaches(Phase.SUCCEEDED, "early")
        assert job.status.workspace is not None
        assert job.status.workspace.requested == "v2"


async def workers(place: Place, name: str) -> list[str]:
    found = await place.admin.list(POD, namespace=place.namespace, labels=f"{JOB_NAME}={name},{ROLE}={ROLE_WORKER}")
    return sorted(pod.metadata.name for pod in found)


class TestSizes:
    @pytest.mark.proves(
        "TorchrunQueue.spec.storage.workspace.sizePerGPU", "TorchrunQueue.spec.storage.checkpoints.sizePerGPU"
    )
    async def test_claims_grow_with_the_gpus_of_the_whole_job(self, place: Place, kubelet: ScriptedKubelet) -> None:
        modes = {"accessModes": ["ReadWriteMany"]}
        storage = {
            "workspace": {"sizePerGPU": "10Gi", **modes},
            "checkpoints": {"enabled": True, "sizePerGPU": "1536Mi", **modes},
        }
        await place.queue("grows", nodeResources={"gpus": 4}, storage=storage)
        plays(kubelet, "grows", ROLE_WORKER, FOR_EVER)
        await place.job("grows", jobQueue="grows", volumes={"workspace": GIT})
        await place.reaches(Phase.RUNNING, "grows")
        sizes = [
            (await claim(place, f"grows-{kind}")).spec["resources"]["requests"]["storage"]
            for kind in ("workspace", "checkpoints")
        ]
        assert sizes == ["80Gi", "12Gi"]
        await deleted(place, "grows")
