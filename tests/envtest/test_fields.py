"""What each field of a queue and of a job becomes in the objects that the API server then holds.

One queue says everything, another what excludes it; each job shows some of it. Their worker pods need not run, and most
ask for nodes that there are none of.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place
from operators import background_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Kind
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.volumes import PROVISIONER

Json = dict[str, Any]

AROUND = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: HERE-fast}
provisioner: PROVISIONER
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: HERE-low}
value: 10
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: HERE-high}
value: 20
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: trainer, namespace: HERE}
"""
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]
        }
    }
}


def queues(here: str) -> dict[str, Json]:
    """Specs by name; `here` makes what is cluster-wide ours."""
    fast = {"storageClass": f"{here}-fast", "accessModes": ["ReadWriteMany"]}
    every: Json = {
        "image": "queue:1",
        "imagePullSecrets": ["registry"],
        "serviceAccountName": "trainer",
        "nodeResources": {
            "gpus": 4,
            "cpus": "8",
            "memory": "16Gi",
            "gpuType": "MI300X",
            "gpuResourceName": "amd.com/gpu",
        },
        "podTemplate": {
            "metadata": {"labels": {"team": "vision"}},
            "spec": {
                "terminationGracePeriodSeconds": 77,
                "containers": [{"name": "trainer", "tty": True}, {"name": "exporter", "image": "exporter:1"}],
            },
        },
        "scheduling": {
            "scheduler": "nobody",
            "nodeSelector": {"zone": "queue", "pool": "queue"},
            "affinity": AFFINITY,
            "tolerations": [{"key": "queue", "operator": "Exists"}],
            "priorityClassName": f"{here}-low",
        },
        "storage": {
            "shmSizePerGPU": "1Gi",
            "datasets": [{"name": "words", "claimName": "words", "mountPath": "/words", "readOnly": False}],
            "checkpoints": {"enabled": True, "sizePerGPU": "2Gi", "mountPath": "/ckpt", "retain": False, **fast},
        },
        "distributed": {
            "backend": "mpi",
            "rdzvBackend": "etcd",
            "rdzvEndpoint": "queue.store:4001",
            "rdzvConf": {"a": "queue", "b": "queue"},
            "port": 30001,
        },
        "env": [
            {"name": "A", "value": "queue"},
            {"name": "B", "value": "queue"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "queue", "optional": True}}],
        "runPolicy": {"maxWorkerRestarts": 7},
    }
    code = {"enabled": True, "sizePerGPU": "3Gi", "mountPath": "/code", "distribution": "shared", **fast}
    other = {"workspace": {"size": "5Gi"}, "checkpoints": {"enabled": True, "size": "6Gi"}}
    kai: Json = {
        "kaiQueue": f"{here}-kai",
        "scheduling": {"topology": {"name": "network", "required": "block", "preferred": "rack"}},
    }
    return {
        "every": every,
        "code": {"image": "queue:1", "nodeResources": {"gpus": 2}, "storage": {"workspace": code}},
        "other": {"image": "queue:1", "nodeResources": {"gpus": 8, "cpus": "7"}, "storage": other},
        "shares": {
            "image": "queue:1",
            "storage": {"checkpoints": {"enabled": True, "claimName": "of-the-team"}},
            "scheduling": {"scheduler": "kai-scheduler", "gang": False},
            "kaiQueue": f"{here}-kai",
            "kaiQueuePolicy": "Reference",
        },
        "kai": {"image": "queue:1", **kai},
    }


def jobs(here: str) -> dict[str, Json]:
    """Specs by name."""
    own: Json = {
        "jobQueue": "every",
        "command": None,
        "args": ["python", "train.py", "a b"],
        "setupCommand": "pip install x",
        "workingDir": "/src",
        "launcher": "none",
        "nprocPerNode": 3,
        "image": "job:2",
        "distributed": {
            "backend": "gloo",
            "rdzvBackend": "static",
            "rdzvEndpoint": "job.store:4002",
            "rdzvConf": {"b": "job"},
            "port": 30002,
        },
        "env": [{"name": "B", "value": "job"}, {"name": "C", "value": "job"}],
        "envFrom": [{"prefix": "P_", "secretRef": {"name": "job", "optional": True}}],
        "labels": {"experiment": "7"},
        "annotations": {"example.com/owner": "vision"},
        "nodeSelector": {"zone": "job"},
        "tolerations": [{"key": "job", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
        "priorityClassName": f"{here}-high",
        "runPolicy": {"maxWorkerRestarts": 9},
        "volumes": {
            "datasets": [
                {"name": "words", "claimName": "more-words", "mountPath": "/words"},
                {"name": "images", "claimName": "images", "mountPath": "/images", "readOnly": False},
            ],
            "checkpoints": {
                "size": "4Gi",
                "storageClass": "standard",
                "accessModes": ["ReadWriteOnce"],
                "mountPath": "/own",
                "retain": True,
            },
            "additionalVolumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
            "additionalMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        },
    }
    git = {
        "source": "git",
        "url": "https://git.example.com/team/code.git",
        "ref": "v7",
        "secretRef": "deploy-key",
        "subPath": "trainer",
        "size": "9Gi",
        "timeoutSeconds": 99,
    }
    return {
        "plain": {"jobQueue": "every"},
        "own": own,
        "code": {"jobQueue": "code"},
        "git": {"jobQueue": "code", "volumes": {"workspace": git}},
        "without": {"jobQueue": "code", "volumes": {"workspace": {"enabled": False}}},
        "other": {
            "jobQueue": "other",
            "numNodes": None,
            "numGPUs": 12,
            "volumes": {"workspace": {"enabled": True}, "checkpoints": {"sizePerGPU": "1Gi"}},
        },
        "sized": {"jobQueue": "other", "volumes": {"workspace": {"source": "zip"}}},
        "shares": {"jobQueue": "shares"},
        "names": {"jobQueue": "other", "volumes": {"checkpoints": {"claimName": "of-the-job"}}},
        "keeps-none": {"jobQueue": "other", "volumes": {"checkpoints": {"enabled": False}}},
        "kai": {"jobQueue": "kai", "priorityClassName": f"{here}-high"},
    }


@dataclass(frozen=True)
class Fields(Place):
    """Where the jobs are, and what became of them."""

    async def raw(self, kind: Kind[Any], name: str) -> Json:
        async def look() -> Json | None:
            there = await self.exists(kind, name)
            return await self.admin.get_raw(kind, name, self.namespace if kind.namespaced else "") if there else None

        found = await until(look)
        assert found is not None
        return found

    async def worker(self, job: str) -> Json:
        """The first worker pod of a job."""

        async def look() -> list[str]:
            labels = f"torchrun-job-name={job},torchrun.ai/role=worker,batch.kubernetes.io/job-completion-index=0"
            pods = await self.admin.list(POD, namespace=self.namespace, labels=labels)
            return [pod.metadata.name for pod in pods]

        (name,) = await until(look)
        return await self.admin.get_raw(POD, name, self.namespace)

    async def trainer(self, job: str) -> Json:
        trainer: Json = (await self.worker(job))["spec"]["containers"][0]
        return trainer

    async def environment(self, job: str) -> Json:
        return {it["name"]: it.get("value", it.get("valueFrom")) for it in (await self.trainer(job))["env"]}

    async def claim(self, name: str) -> Json:
        """What a claim asks for."""
        spec = (await self.raw(PVC, name))["spec"]
        asked = {"size": spec["resources"]["requests"]["storage"], "modes": spec["accessModes"]}
        return asked | {"class": spec["storageClassName"].removeprefix(f"{self.namespace}-")}

    async def claims(self, job: str) -> dict[str, tuple[str, bool]]:
        """The claims that a worker mounts: name and whether it may only read, by path."""
        spec = (await self.worker(job))["spec"]
        given = [it for it in spec.get("volumes", ()) if "persistentVolumeClaim" in it]
        volumes = {it["name"]: it["persistentVolumeClaim"] for it in given}
        mounts = spec["containers"][0].get("volumeMounts", ())
        found = {mount["mountPath"]: volumes.get(mount["name"]) for mount in mounts}
        return {path: (it["claimName"], it.get("readOnly", False)) for path, it in found.items() if it is not None}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(
    control_plane: ControlPlane, admin: Client, operator_account: Connection, kubelet: ScriptedKubelet
) -> AsyncGenerator[Fields]:
    here = fresh_name("fields")
    await create_namespace(admin, here)
    around = AROUND.replace("HERE", here).replace("PROVISIONER", PROVISIONER)
    await control_plane.kubectl("apply", "-f-", input=around)
    place = Fields(admin, here)
    async with background_operator(operator_account, here):
        for name, spec in queues(here).items():
            await place.queue(name, **spec)
        for name, spec in jobs(here).items():
            await place.job(name, **spec)
        yield place
    await control_plane.kubectl("delete", "--wait=false", "-f-", input=around)
    await clear(admin, here)


def part(of: Json, *names: str) -> Json:
    return {name: of.get(name) for name in names}


# Pods.


@pytest.mark.proves(
    "TorchrunQueue.spec.image",
    "TorchrunQueue.spec.imagePullSecrets",
    "TorchrunQueue.spec.serviceAccountName",
    "TorchrunQueue.spec.podTemplate",
)
async def test_a_pod_is_what_the_queue_says(place: Fields) -> None:
    pod = await place.worker("plain")
    (trainer,), exporter = pod["spec"]["containers"], pod["spec"]["initContainers"][-1]
    assert (trainer["image"], exporter["image"], exporter["restartPolicy"]) == ("queue:1", "exporter:1", "Always")
    assert (pod["spec"]["imagePullSecrets"], pod["spec"]["serviceAccountName"]) == ([{"name": "registry"}], "trainer")
    assert (pod["spec"]["terminationGracePeriodSeconds"], trainer["tty"]) == (77, True)
    assert pod["metadata"]["labels"]["team"] == "vision"


@pytest.mark.proves(
    "TorchrunQueue.spec.nodeResources.gpus",
    "TorchrunQueue.spec.nodeResources.cpus",
    "TorchrunQueue.spec.nodeResources.memory",
    "TorchrunQueue.spec.nodeResources.gpuType",
    "TorchrunQueue.spec.nodeResources.gpuResourceName",
)
async def test_pod_requests_what_nodes_of_the_queue_have(place: Fields) -> None:
    pod = await place.worker("plain")
    amounts = {"cpu": "8", "memory": "16Gi", "amd.com/gpu": "4"}
    assert pod["spec"]["containers"][0]["resources"] == {"requests": amounts, "limits": amounts}
    assert pod["spec"]["nodeSelector"]["amd.com/gpu.product-name"] == "MI300X"


@pytest.mark.proves(
    "TorchrunQueue.spec.scheduling.scheduler",
    "TorchrunQueue.spec.scheduling.nodeSelector",
    "TorchrunQueue.spec.scheduling.affinity",
    "TorchrunQueue.spec.scheduling.tolerations",
    "TorchrunQueue.spec.scheduling.priorityClassName",
)
async def test_pods_are_placed_as_the_queue_says(place: Fields) -> None:
    spec = (await place.worker("plain"))["spec"]
    assert (spec["schedulerName"], spec["affinity"], spec["priority"]) == ("nobody", AFFINITY, 10)
    assert part(spec["nodeSelector"], "zone", "pool") == {"zone": "queue", "pool": "queue"}
    assert {"key": "queue", "operator": "Exists"} in spec["tolerations"]


@pytest.mark.proves(
    "TorchrunJob.spec.jobQueue",
    "TorchrunJob.spec.image",
    "TorchrunJob.spec.labels",
    "TorchrunJob.spec.annotations",
    "TorchrunJob.spec.nodeSelector",
    "TorchrunJob.spec.tolerations",
    "TorchrunJob.spec.priorityClassName",
)
async def test_a_jobs_word_wins_by_key(place: Fields) -> None:
    pod = await place.worker("own")
    spec = pod["spec"]
    assert (spec["containers"][0]["image"], spec["priority"]) == ("job:2", 20)
    assert part(pod["metadata"]["labels"], "team", "experiment", "torchrun.ai/queue") == {
        "team": "vision",
        "experiment": "7",
        "torchrun.ai/queue": "every",
    }
    assert pod["metadata"]["annotations"]["example.com/owner"] == "vision"
    assert part(spec["nodeSelector"], "zone", "pool") == {"zone": "job", "pool": "queue"}
    assert spec["tolerations"][:2] == [
        {"key": "queue", "operator": "Exists"},
        {"key": "job", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
    ]


@pytest.mark.proves("TorchrunJob.spec.numNodes", "TorchrunJob.spec.numGPUs", "TorchrunJob.status.gpus")
async def test_a_job_is_as_large_as_it_asks(place: Fields) -> None:
    assert (await place.raw(JOB, "plain"))["spec"]["completions"] == 2
    job = await place.raw(JOB, "other")
    resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert (job["spec"]["completions"], resources["limits"]) == (2, {"cpu": "5250m", "nvidia.com/gpu": "6"})
    assert (await place.raw(TORCHRUN_JOB, "other"))["status"]["gpus"] == 12


@pytest.mark.proves(
    "TorchrunJob.spec.command",
    "TorchrunJob.spec.args",
    "TorchrunJob.spec.setupCommand",
    "TorchrunJob.spec.workingDir",
    "TorchrunJob.spec.launcher",
    "TorchrunJob.spec.nprocPerNode",
)
async def test_what_is_run_is_what_the_job_says(place: Fields) -> None:
    assert (await place.trainer("plain"))["command"] == ["sh", "-c", "exec torchrun train.py"]
    trainer = await place.trainer("own")
    assert trainer["command"][:2] == ["sh", "-c"]
    assert trainer["command"][3:] == ["sh", "pip install x", "python", "train.py", "a b"]
    assert trainer["workingDir"] == "/src"
    assert (await place.environment("own"))["PET_NPROC_PER_NODE"] == "3"


# Environment.


@pytest.mark.proves(
    "TorchrunQueue.spec.env", "TorchrunQueue.spec.envFrom", "TorchrunJob.spec.env", "TorchrunJob.spec.envFrom"
)
async def test_variables_of_the_job_come_over_those_of_the_queue(place: Fields) -> None:
    found = await place.environment("own")
    field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}
    assert part(found, "A", "B", "C", "NODE") == {"A": "queue", "B": "job", "C": "job", "NODE": field}
    assert (await place.trainer("own"))["envFrom"] == [
        {"configMapRef": {"name": "queue", "optional": True}},
        {"prefix": "P_", "secretRef": {"name": "job", "optional": True}},
    ]


@pytest.mark.proves(
    "TorchrunQueue.spec.distributed.backend",
    "TorchrunQueue.spec.distributed.rdzvBackend",
    "TorchrunQueue.spec.distributed.rdzvEndpoint",
    "TorchrunQueue.spec.distributed.rdzvConf",
    "TorchrunQueue.spec.distributed.port",
    "TorchrunQueue.spec.runPolicy.maxWorkerRestarts",
)
async def test_torchrun_finds_its_peers_as_the_queue_says(place: Fields) -> None:
    found = await place.environment("plain")
    expected = {
        "TORCHRUN_BACKEND": "mpi",
        "PET_RDZV_BACKEND": "etcd",
        "PET_RDZV_ENDPOINT": "queue.store:4001",
        "PET_RDZV_CONF": "a=queue,b=queue",
        "MASTER_PORT": "30001",
        "PET_MAX_RESTARTS": "7",
    }
    assert part(found, *expected) == expected


@pytest.mark.proves(
    "TorchrunJob.spec.distributed.backend",
    "TorchrunJob.spec.distributed.rdzvBackend",
    "TorchrunJob.spec.distributed.rdzvEndpoint",
    "TorchrunJob.spec.distributed.rdzvConf",
    "TorchrunJob.spec.runPolicy.maxWorkerRestarts",
)
async def test_torchrun_finds_its_peers_as_the_job_says(place: Fields) -> None:
    found = await place.environment("own")
    expected = {
        "TORCHRUN_BACKEND": "gloo",
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": "job.store:4002",
        "PET_RDZV_CONF": "b=job",  # the queue's is for another backend
        "PET_MAX_RESTARTS": "9",
    }
    assert part(found, *expected) == expected


# Volumes.


@pytest.mark.proves(
    "TorchrunQueue.spec.storage.shmSizePerGPU",
    "TorchrunQueue.spec.storage.datasets[].name",
    "TorchrunQueue.spec.storage.datasets[].claimName",
    "TorchrunQueue.spec.storage.datasets[].mountPath",
    "TorchrunQueue.spec.storage.datasets[].readOnly",
    "TorchrunQueue.spec.storage.checkpoints.mountPath",
)
async def test_volumes_of_the_queue_are_mounted(place: Fields) -> None:
    spec = (await place.worker("plain"))["spec"]
    (shm,) = [it["emptyDir"] for it in spec["volumes"] if it.get("emptyDir", {}).get("medium") == "Memory"]
    assert shm["sizeLimit"] == "4Gi"
    assert await place.claims("plain") == {"/words": ("words", False), "/ckpt": ("plain-checkpoints", False)}
    assert "words" in [it["name"] for it in spec["volumes"]]
    assert (await place.environment("plain"))["TORCHRUN_CHECKPOINT_DIR"] == "/ckpt"


@pytest.mark.proves(
    "TorchrunJob.spec.volumes.datasets[].name",
    "TorchrunJob.spec.volumes.datasets[].claimName",
    "TorchrunJob.spec.volumes.datasets[].mountPath",
    "TorchrunJob.spec.volumes.datasets[].readOnly",
    "TorchrunJob.spec.volumes.additionalVolumes",
    "TorchrunJob.spec.volumes.additionalMounts",
    "TorchrunJob.spec.volumes.checkpoints.mountPath",
)
async def test_volumes_of_the_job_override_those_of_the_queue(place: Fields) -> None:
    """A volume of the same name takes the place of the queue's."""
    assert await place.claims("own") == {
        "/words": ("more-words", True),
        "/images": ("images", False),
        "/own": ("own-checkpoints", False),
    }
    spec = (await place.worker("own"))["spec"]
    assert {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}} in spec["volumes"]
    assert {"name": "scratch", "mountPath": "/scratch"} in spec["containers"][0]["volumeMounts"]


@pytest.mark.proves(
    "TorchrunQueue.spec.storage.checkpoints.enabled",
    "TorchrunQueue.spec.storage.checkpoints.size",
    "TorchrunQueue.spec.storage.checkpoints.sizePerGPU",
    "TorchrunQueue.spec.storage.checkpoints.storageClass",
    "TorchrunQueue.spec.storage.checkpoints.accessModes",
    "TorchrunQueue.spec.storage.checkpoints.claimName",
    "TorchrunQueue.spec.storage.checkpoints.retain",
)
async def test_checkpoints_are_kept_as_the_queue_says(place: Fields) -> None:
    assert await place.claim("plain-checkpoints") == {"size": "16Gi", "modes": ["ReadWriteMany"], "class": "fast"}
    assert (await place.raw(PVC, "plain-checkpoints"))["metadata"]["ownerReferences"][0]["name"] == "plain"
    assert (await place.claim("sized-checkpoints"))["size"] == "6Gi"
    assert await place.claims("shares") == {"/checkpoints": ("of-the-team", False)}


@pytest.mark.proves(
    "TorchrunJob.spec.volumes.checkpoints.enabled",
    "TorchrunJob.spec.volumes.checkpoints.size",
    "TorchrunJob.spec.volumes.checkpoints.sizePerGPU",
    "TorchrunJob.spec.volumes.checkpoints.storageClass",
    "TorchrunJob.spec.volumes.checkpoints.accessModes",
    "TorchrunJob.spec.volumes.checkpoints.claimName",
    "TorchrunJob.spec.volumes.checkpoints.retain",
)
async def test_checkpoints_are_kept_as_the_job_says(place: Fields) -> None:
    assert await place.claim("own-checkpoints") == {"size": "4Gi", "modes": ["ReadWriteOnce"], "class": "standard"}
    assert "ownerReferences" not in (await place.raw(PVC, "own-checkpoints"))["metadata"]
    assert (await place.claim("other-checkpoints"))["size"] == "12Gi"
    assert await place.claims("names") == {"/checkpoints": ("of-the-job", False)}
    assert await place.claims("keeps-none") == {}


# Workspaces.


@pytest.mark.proves(
    "TorchrunQueue.spec.storage.workspace.enabled",
    "TorchrunQueue.spec.storage.workspace.size",
    "TorchrunQueue.spec.storage.workspace.sizePerGPU",
    "TorchrunQueue.spec.storage.workspace.storageClass",
    "TorchrunQueue.spec.storage.workspace.accessModes",
    "TorchrunQueue.spec.storage.workspace.mountPath",
    "TorchrunQueue.spec.storage.workspace.distribution",
    "TorchrunJob.spec.volumes.workspace.enabled",
)
async def test_a_workspace_is_as_the_queue_says(place: Fields) -> None:
    assert await place.claim("code-workspace") == {"size": "12Gi", "modes": ["ReadWriteMany"], "class": "fast"}
    assert await place.claims("code") == {"/code": ("code-workspace", False)}
    assert (await place.trainer("code"))["workingDir"] == "/code"
    assert (await place.claim("sized-workspace"))["size"] == "5Gi"
    assert (await place.claim("other-workspace"))["class"] == "standard"
    assert await place.claims("without") == {}


@pytest.mark.proves(
    "TorchrunJob.spec.volumes.workspace.source",
    "TorchrunJob.spec.volumes.workspace.url",
    "TorchrunJob.spec.volumes.workspace.ref",
    "TorchrunJob.spec.volumes.workspace.secretRef",
    "TorchrunJob.spec.volumes.workspace.subPath",
    "TorchrunJob.spec.volumes.workspace.size",
    "TorchrunJob.spec.volumes.workspace.timeoutSeconds",
)
async def test_a_workspace_comes_from_where_the_job_says(place: Fields) -> None:
    assert (await place.claim("git-workspace"))["size"] == "9Gi"
    spec = (await place.raw(POD, "git-sync-0"))["spec"]
    assert spec["containers"][0]["args"] == [
        "fetch",
        "--source=git",
        "--root=/workspace",
        "--timeout=99",
        "--url=https://git.example.com/team/code.git",
        "--ref=v7",
        "--secret-dir=/secret",
    ]
    assert [it["secret"]["secretName"] for it in spec["volumes"] if "secret" in it] == ["deploy-key"]
    mounts = (await place.trainer("git"))["volumeMounts"]
    assert [it["subPath"] for it in mounts if it["mountPath"] == "/code"] == ["trainer"]


# KAI.


@pytest.mark.proves(
    "TorchrunQueue.spec.scheduling.gang",
    "TorchrunQueue.spec.scheduling.topology.name",
    "TorchrunQueue.spec.scheduling.topology.required",
    "TorchrunQueue.spec.scheduling.topology.preferred",
)
async def test_only_a_gang_has_a_group_with_its_topology(place: Fields) -> None:
    uid = (await place.worker("kai"))["metadata"]["labels"]["torchrun.ai/job-uid"]
    spec = (await place.raw(KAI_PODGROUP, f"pg-kai-{uid}"))["spec"]
    expected = {"topology": "network", "requiredTopologyLevel": "block", "preferredTopologyLevel": "rack"}
    assert (spec["minMember"], spec["topologyConstraint"]) == (2, expected)
    await place.worker("shares")
    several = "torchrun-job-name in (kai,plain,shares)"
    groups = await place.admin.list(KAI_PODGROUP, namespace=place.namespace, labels=several)
    assert [group.metadata.name for group in groups] == [f"pg-kai-{uid}"]


# Status.


@pytest.mark.proves("TorchrunJob.status.queueRevision", "TorchrunJob.status.jobID", "TorchrunJob.status.selector")
async def test_status_names_revision_id_and_pod_selector(place: Fields) -> None:
    await place.worker("plain")
    job = await place.raw(TORCHRUN_JOB, "plain")
    assert await place.exists(CONTROLLER_REVISION, job["status"]["queueRevision"])
    assert job["status"]["jobID"] == job["metadata"]["uid"]

    async def both() -> bool:
        return len(await place.admin.list(POD, namespace=place.namespace, labels=job["status"]["selector"])) == 2

    await until(both)
