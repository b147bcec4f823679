"""The API server takes the CRDs as they are, and refuses what API users get wrong, naming the field."""

import copy
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from clusters import established, known
from pydantic import BaseModel, ValidationError

from torchctl.api.job import TORCHRUN_JOB, Failure, JobSpec, JobStatus, NodeCounts
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE, QueueSpec
from torchctl.api.rules import problems
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Invalid
from torchctl.runtime.kinds import Condition, Kind
from torchctl.testing.controlplane import CommandFailed, ControlPlane

CONFIG = Path(__file__).resolve().parents[2] / "config"
ABSENT: Any = object()

JOB: dict[str, Any] = {
    "apiVersion": "torchrun.ai/v1alpha1",
    "kind": "TorchrunJob",
    "metadata": {"name": "job"},
    "spec": {"jobQueue": "queue", "numNodes": 2, "command": "python train.py"},
}
QUEUE: dict[str, Any] = {
    "apiVersion": "torchrun.ai/v1alpha1",
    "kind": "TorchrunQueue",
    "metadata": {"name": "queue"},
    "spec": {"image": "trainer:1"},
}
ELASTIC = {"spec.elastic": {"minNodes": 1, "maxNodes": 4}}
LABELLED = ("labels", "annotations", "nodeSelector")
BAD_KEYS = ("a b", "", "-a", "a/b/c", "/a", "a/", "x" * 64, f"{'x.' * 127}x/a")
TOO_MANY_MODES = ["ReadWriteOncePod", "ReadWriteMany"]
GIT = {"source": "git", "url": "https://git.example.com/team/code"}


def changed(body: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The object with values put at dotted paths."""
    body = copy.deepcopy(body)
    for path, value in changes.items():
        *parents, last = path.split(".")
        node = body
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is ABSENT:
            node.pop(last, None)
        else:
            node[last] = value
    return body


def workspace(**fields: Any) -> dict[str, Any]:
    return {"spec.volumes.workspace": fields}


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def installed(control_plane: ControlPlane) -> None:
    """The generated CRDs are served."""
    await control_plane.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", str(CONFIG / "crd"))
    await established(control_plane)
    await known(control_plane, "trj", "trq")


REFUSED_JOBS: list[tuple[str, dict[str, Any]]] = [
    # size
    ("numNodes and numGPUs", {"spec.numNodes": ABSENT}),
    ("numNodes and numGPUs", {"spec.numGPUs": 8}),
    ("spec.numNodes", {"spec.numNodes": 0}),
    ("spec.numNodes", {"spec.numNodes": 1_000_000_000}),
    ("spec.numNodes", {"spec.numNodes": "two"}),
    ("spec.numGPUs", {"spec.numNodes": ABSENT, "spec.numGPUs": -1}),
    ("spec.elastic", {"spec.numNodes": ABSENT, "spec.numGPUs": 8, **ELASTIC}),
    ("spec.elastic.minNodes", {"spec.elastic": {"minNodes": 0, "maxNodes": 4}}),
    ("spec.elastic.minNodes", {"spec.elastic": {"minNodes": 5, "maxNodes": 4}}),
    ("spec.elastic.maxNodes", {"spec.elastic": {"minNodes": 1}}),
    ("spec.numNodes", {**ELASTIC, "spec.numNodes": 5}),
    ("spec.numNodes", {"spec.elastic": {"minNodes": 3, "maxNodes": 4}}),
    ("spec.elastic", {**ELASTIC, "spec.distributed": {"rdzvBackend": "static"}}),
    # what runs
    ("spec.priorityClassName", {"spec.priorityClassName": "system-node-critical"}),
    ("spec.jobQueue", {"spec.jobQueue": ABSENT}),
    ("spec.jobQueue", {"spec.jobQueue": "other/queue"}),
    ("command and args", {"spec.command": ABSENT}),
    ("command and args", {"spec.args": ["python", "train.py"]}),
    ("spec.command", {"spec.command": ""}),
    ("spec.command", {"spec.command": " \n"}),
    ("spec.command", {"spec.command": "x" * 40_000}),
    ("spec.args", {"spec.command": ABSENT, "spec.args": []}),
    ("spec.args", {"spec.command": ABSENT, "spec.args": [""]}),
    ("spec.setupCommand", {"spec.setupCommand": ""}),
    ("spec.workingDir", {"spec.workingDir": "relative"}),
    ("spec.launcher", {"spec.launcher": "mpirun"}),
    ("spec.nprocPerNode", {"spec.nprocPerNode": 0}),
    ("spec.image", {"spec.image": "two words"}),
    # rendezvous
    ("spec.distributed.backend", {"spec.distributed": {"backend": "ucc2"}}),
    ("spec.distributed.rdzvBackend", {"spec.distributed": {"rdzvBackend": "zookeeper"}}),
    ("spec.distributed.rdzvEndpoint", {"spec.distributed": {"rdzvEndpoint": "a b"}}),
    ("spec.distributed.rdzvConf", {"spec.distributed": {"rdzvConf": {"join_timeout": "1,is_host=1"}}}),
    ("spec.distributed.port", {"spec.distributed": {"port": 1023}}),
    ("spec.distributed.port", {"spec.distributed": {"port": 65536}}),
    # workspace
    ("spec.volumes.workspace.source", workspace(source="ftp")),
    ("url", workspace(source="git")),
    ("url", workspace(source="s3")),
    ("claimName", workspace(source="existing")),
    ("claimName", workspace(**GIT, claimName="code")),
    ("url and size", workspace(source="existing", claimName="code", url="https://a.example.com/x.zip")),
    ("url and size", workspace(source="existing", claimName="code", size="1Gi")),
    ("ref", workspace(source="zip", ref="main")),
    ("spec.volumes.workspace.ref", workspace(**GIT, ref="--upload-pack=x")),
    ("spec.volumes.workspace.ref", workspace(**GIT, ref="a..b")),
    ("spec.volumes.workspace.url", workspace(source="git", url="file:///etc")),
    ("spec.volumes.workspace.url", workspace(source="zip", url="https://169.254.169.254/latest")),
    ("spec.volumes.workspace.url", workspace(source="git", url="ssh://git@[FD00:EC2::254]/code")),
    ("spec.volumes.workspace.url", workspace(source="git", url="ext::sh -c touch% /tmp/x")),
    ("spec.volumes.workspace.url", workspace(source="git", url="http://git.example.com/team/code")),
    ("spec.volumes.workspace.url", workspace(source="git", url="s3://bucket/code")),
    ("spec.volumes.workspace.url", workspace(source="zip", url="ssh://git.example.com/code.zip")),
    ("spec.volumes.workspace.url", workspace(source="s3", url="https://bucket.example.com/code")),
    ("spec.volumes.workspace.url", workspace(source="git", url="https://me:secret@git.example.com/team/code")),
    ("spec.volumes.workspace.url", workspace(source="git", url="https://token@git.example.com/team/code")),
    ("spec.volumes.workspace.url", workspace(source="git", url="ssh://git:secret@git.example.com/team/code")),
    ("spec.volumes.workspace.url", workspace(source="git", url="ssh://-oProxyCommand=x/code")),
    ("spec.volumes.workspace.url", workspace(source="git", url="ssh://git@-oProxyCommand=x/code")),
    ("spec.volumes.workspace.subPath", workspace(**GIT, subPath="../other")),
    ("spec.volumes.workspace.subPath", workspace(**GIT, subPath="a/../../b")),
    ("spec.volumes.workspace.subPath", workspace(**GIT, subPath="/etc")),
    ("spec.volumes.workspace.secretRef", workspace(**GIT, secretRef="Not A Name")),
    ("spec.volumes.workspace.size", workspace(size="10Gb")),
    ("spec.volumes.workspace.size", workspace(size=0)),
    ("spec.volumes.workspace.size", workspace(size="0Gi")),
    ("spec.volumes.workspace.size", workspace(size="-1Gi")),
    ("spec.volumes.workspace.timeoutSeconds", workspace(timeoutSeconds=0)),
    ("spec.volumes.workspace.revision", workspace(revision="a b")),
    ("spec.volumes.workspace.revision", workspace(source="s3", url="s3://bucket/code/", revision="v2")),
    ("spec.volumes.workspace.revision", workspace(source="zip", url="https://a.example.com/x.zip", revision="v2")),
    ("spec.volumes.workspace.revision", workspace(source="existing", claimName="code", revision="0" * 63)),
    # other volumes
    ("size and sizePerGPU", {"spec.volumes.checkpoints": {"size": "1Gi", "sizePerGPU": "1Gi"}}),
    ("claimName", {"spec.volumes.checkpoints": {"size": "1Gi", "claimName": "shared"}}),
    ("claimName", {"spec.volumes.datasets": [{"name": "imagenet", "mountPath": "/data"}]}),
    ("mountPath", {"spec.volumes.datasets": [{"name": "a", "claimName": "a", "mountPath": "data"}]}),
    ("datasets[1]", {"spec.volumes.datasets": [{"name": "a", "claimName": "a", "mountPath": "/a"}] * 2}),
    ("name", {"spec.volumes.additionalVolumes": [{"emptyDir": {}}]}),
    ("mountPath", {"spec.volumes.additionalMounts": [{"name": "a"}]}),
    # what the operator owns
    *(
        (f"spec.{field}", {f"spec.{field}": {key: "x"}})
        for field in ("labels", "annotations")
        for key in (
            "kai.scheduler/queue",
            "torchrun.ai/job-name",
            "pod-group-name",
            "scheduling.k8s.io/group-name",
            "scheduling.volcano.sh/queue-name",
            "torchrun-job-name",
            "app.kubernetes.io/name",
            "batch.kubernetes.io/job-completion-index",
        )
    ),
    *(
        ("spec.env[0].name", {"spec.env": [{"name": name, "value": "1"}]})
        for name in ("PET_NNODES", "RANK", "WORLD_SIZE", "MASTER_ADDR", "NNODES", "TORCHRUN_ATTEMPT", "POD_IP")
    ),
    ("spec.env[0].name", {"spec.env": [{"name": "A=B"}]}),
    ("spec.env[1]", {"spec.env": [{"name": "A"}, {"name": "A"}]}),
    ("value and valueFrom", {"spec.env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {}}}]}),
    ("spec.env", {"spec.env": [{"name": f"A{n}"} for n in range(300)]}),
    ("spec.labels", {"spec.labels": {"team": "not a label value!"}}),
    ("spec.labels", {"spec.labels": {f"k{n}": "v" for n in range(65)}}),
    *((f"spec.{field}", {f"spec.{field}": {key: ""}}) for field in LABELLED for key in BAD_KEYS),
    *((f"spec.{field}", {f"spec.{field}": {"Example.com/a": ""}}) for field in ("labels", "nodeSelector")),
    *(("spec.env[0].name", {"spec.env": [{"name": name}]}) for name in (".", "..", "..A", "1A")),
    ("configMapRef and secretRef", {"spec.envFrom": [{"prefix": "A_"}]}),
    ("configMapRef and secretRef", {"spec.envFrom": [{"configMapRef": {"name": "a"}, "secretRef": {"name": "a"}}]}),
    ("spec.envFrom[0].prefix", {"spec.envFrom": [{"prefix": "1A", "secretRef": {"name": "a"}}]}),
    ("spec.volumes.checkpoints.accessModes", {"spec.volumes.checkpoints": {"accessModes": TOO_MANY_MODES}}),
    ("spec.tolerations[0].operator", {"spec.tolerations": [{"operator": "Maybe"}]}),
    ("spec.tolerations[0].operator", {"spec.tolerations": [{"value": "a"}]}),
    ("spec.tolerations[0].key", {"spec.tolerations": [{"key": "a b"}]}),
    ("spec.tolerations[0].value", {"spec.tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
    ("spec.tolerations[0].value", {"spec.tolerations": [{"key": "a", "value": "a b"}]}),
    ("spec.tolerations[0].effect", {"spec.tolerations": [{"key": "a", "tolerationSeconds": 1}]}),
    ("spec.tolerations[0].effect", {"spec.tolerations": [{"effect": "Sometimes"}]}),
    # the rest
    ("spec.queueUpdatePolicy", {"spec.queueUpdatePolicy": "Always"}),
    ("spec.dependsOn[0].condition", {"spec.dependsOn": [{"job": "a", "condition": "Failed"}]}),
    ("spec.dependsOn[1]", {"spec.dependsOn": [{"job": "a"}, {"job": "a"}]}),
    ("spec.runPolicy.maxRestarts", {"spec.runPolicy": {"maxRestarts": -1}}),
    ("spec.runPolicy.maxWorkerRestarts", {"spec.runPolicy": {"maxWorkerRestarts": -1}}),
    ("spec.runPolicy.restartPolicy", {"spec.runPolicy": {"restartPolicy": "Always"}}),
    ("spec.runPolicy.ttlSecondsAfterFinished", {"spec.runPolicy": {"ttlSecondsAfterFinished": -1}}),
    ("spec.runPolicy.activeDeadlineSeconds", {"spec.runPolicy": {"activeDeadlineSeconds": 0}}),
    ("spec.runPolicy.startupTimeoutSeconds", {"spec.runPolicy": {"startupTimeoutSeconds": 0}}),
    ("spec.runPolicy.podRetention", {"spec.runPolicy": {"podRetention": "Some"}}),
]

REFUSED_NAMES = [
    ("metadata.name", {"metadata.name": "1job"}),
    ("metadata.name", {"metadata.name": "a.b"}),
    ("metadata.name", {"metadata.name": "x" * 51}),
    ("metadata.name", {"metadata.name": "train-r1"}),
    ("metadata.name", {"metadata.name": "train-sync-0"}),
    ("-workspace", {"metadata.name": "train-workspace"}),
    ("spec.dependsOn", {"spec.dependsOn": [{"job": "job"}]}),
]
"""Rules over the whole object, which a spec alone cannot break."""

REFUSED_QUEUES: list[tuple[str, dict[str, Any]]] = [
    ("spec.scheduling.priorityClassName", {"spec.scheduling": {"priorityClassName": "system-cluster-critical"}}),
    ("spec.kaiQueue", {"spec.kaiQueue": "Not_DNS"}),
    ("spec.kaiQueue", {"spec.kaiQueue": "x" * 64}),
    ("spec.kaiQueuePolicy", {"spec.kaiQueuePolicy": "Adopt"}),
    ("spec.kaiQueuePolicy", {"spec.kaiQueuePolicy": "Reference"}),
    ("spec.parentKaiQueue", {"spec.kaiQueue": "a", "spec.parentKaiQueue": "a"}),
    ("spec.kaiResources.gpu.quota", {"spec.kaiResources": {"gpu": {"quota": -2}}}),
    ("spec.kaiResources.gpu.quota", {"spec.kaiResources": {"gpu": {"quota": -0.5}}}),
    ("spec.kaiResources.gpu.limit", {"spec.kaiResources": {"gpu": {"limit": -0.5}}}),
    ("spec.kaiResources.gpu.quota", {"spec.kaiResources": {"gpu": {"quota": 8, "limit": 4}}}),
    ("spec.kaiResources.cpu.quota", {"spec.kaiResources": {"cpu": {"quota": 8, "limit": "4"}}}),
    ("spec.kaiResources.cpu.quota", {"spec.kaiResources": {"cpu": {"quota": "2", "limit": "1500m"}}}),
    ("spec.kaiResources.cpu.quota", {"spec.kaiResources": {"cpu": {"quota": -2}}}),
    ("spec.kaiResources.memory.quota", {"spec.kaiResources": {"memory": {"quota": "1Ti", "limit": "512Gi"}}}),
    ("spec.kaiResources.memory.limit", {"spec.kaiResources": {"memory": {"limit": "much"}}}),
    ("overQuotaWeight", {"spec.kaiResources": {"gpu": {"overQuotaWeight": -1}}}),
    ("spec.preemptMinRuntime", {"spec.preemptMinRuntime": "soon"}),
    ("spec.reclaimMinRuntime", {"spec.reclaimMinRuntime": "10"}),
    ("spec.nodeResources.gpus", {"spec.nodeResources": {"gpus": -1}}),
    ("spec.nodeResources.cpus", {"spec.nodeResources": {"cpus": -1}}),
    ("spec.nodeResources.memory", {"spec.nodeResources": {"memory": "-512Gi"}}),
    ("spec.nodeResources.memory", {"spec.nodeResources": {"memory": "1e999"}}),
    ("spec.nodeResources.gpuType", {"spec.nodeResources": {"gpuType": "h100 80gb"}}),
    ("spec.nodeResources.gpuResourceName", {"spec.nodeResources": {"gpuResourceName": "nvidia.com/"}}),
    ("trainer", {"spec.podTemplate": {"spec": {"containers": [{"name": "main"}]}}}),
    ("trainer", {"spec.podTemplate": {"spec": {"containers": [{"name": "sidecar"}, {"name": "trainer"}]}}}),
    ("containers[1]", {"spec.podTemplate": {"spec": {"containers": [{"name": "trainer"}] * 2}}}),
    ("containers[0].name", {"spec.podTemplate": {"spec": {"containers": [{"image": "x"}]}}}),
    ("spec.scheduling.topology.name", {"spec.scheduling": {"topology": {"required": "rack"}}}),
    ("spec.storage.shmSizePerGPU", {"spec.storage": {"shmSizePerGPU": "-1Gi"}}),
    ("size and sizePerGPU", {"spec.storage": {"workspace": {"size": "1Gi", "sizePerGPU": "1Gi"}}}),
    ("size and sizePerGPU", {"spec.storage": {"checkpoints": {"size": "1Gi", "sizePerGPU": "1Gi"}}}),
    ("claimName", {"spec.storage": {"checkpoints": {"size": "1Gi", "claimName": "shared"}}}),
    ("spec.storage.workspace.accessModes", {"spec.storage": {"workspace": {"accessModes": ["ReadOften"]}}}),
    ("spec.storage.workspace.accessModes", {"spec.storage": {"workspace": {"accessModes": []}}}),
    ("spec.storage.workspace.accessModes", {"spec.storage": {"workspace": {"accessModes": TOO_MANY_MODES}}}),
    ("spec.scheduling.nodeSelector", {"spec.scheduling": {"nodeSelector": {"a b": ""}}}),
    ("spec.podTemplate.metadata.labels", {"spec.podTemplate": {"metadata": {"labels": {"a b": ""}}}}),
    ("spec.podTemplate.metadata.annotations", {"spec.podTemplate": {"metadata": {"annotations": {"a b": ""}}}}),
    ("spec.storage.workspace.mountPath", {"spec.storage": {"workspace": {"mountPath": "app"}}}),
    ("spec.storage.workspace.mountPath", {"spec.storage": {"workspace": {"mountPath": "/"}}}),
    ("spec.storage.workspace.distribution", {"spec.storage": {"workspace": {"distribution": "torrent"}}}),
    ("spec.distributed.rdzvBackend", {"spec.distributed": {"rdzvBackend": "zookeeper"}}),
    ("spec.env[0].name", {"spec.env": [{"name": "PET_NNODES"}]}),
    ("template.kind", {"spec.resources": [{"name": "a", "template": {"apiVersion": "v1", "kind": "Secret"}}]}),
    (
        "template.apiVersion",
        {"spec.resources": [{"name": "a", "template": {"apiVersion": "rbac/v1", "kind": "ConfigMap"}}]},
    ),
    (
        "spec.resources[0].nameMode",
        {"spec.resources": [{"name": "a", "nameMode": "any", "template": {"apiVersion": "v1", "kind": "ConfigMap"}}]},
    ),
    ("spec.nodeResources.gpusPerNode", {"spec.nodeResources": {"gpus": 8, "gpusPerNode": 8}}),
    ("spec.nodeResources.gpusPerNode", {"spec.nodeResources": {"gpusPerNode": 0}}),
    ("spec.weight", {"spec.weight": 0}),
    ("spec.maxNodes", {"spec.maxNodes": 0}),
    ("spec.quota.gpus", {"spec.quota": {"gpus": -1}}),
    ("spec.image", {"spec.image": ""}),
]

ACCEPTED_JOBS: list[dict[str, Any]] = [
    {"spec.numNodes": ABSENT, "spec.numGPUs": 0},
    {"spec.numNodes": ABSENT, "spec.numGPUs": 16},
    {**ELASTIC},
    {"spec.command": ABSENT, "spec.args": ["python", "-c", ""]},
    {"metadata.name": "x" * 50},
    {"metadata.name": "train-r1x"},
    workspace(),
    workspace(enabled=False),
    workspace(source="zip", url="https://store.example.com/code.zip?signature=a@b:c"),
    workspace(**GIT, ref="refs/heads/feature/a+b", subPath="src/app", secretRef="git"),
    workspace(source="git", url="ssh://git@git.example.com:2222/team/code.git", ref="v1.0.0"),
    workspace(source="git", url="https://git.example.com/@scope/code"),
    workspace(source="s3", url="s3://bucket/code.tar", revision="0" * 64),
    workspace(source="s3", url="s3://bucket/code/", revision="sha256:" + "0aF" * 21 + "1", secretRef="bucket"),
    workspace(**GIT, revision="release/1.0+x"),
    workspace(source="zip", revision="upload-7"),
    workspace(source="existing", claimName="code"),
    {"spec.env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "TORCH_NCCL_ASYNC_ERROR_HANDLING", "value": "0"}]},
    {"spec.env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]},
    {"spec.labels": {"kueue.x-k8s.io/queue-name": "team-a", "team": ""}},
    {f"spec.{field}": {f"{'x.' * 126}x/{'Y' * 63}": "", "A.b_c-9": ""} for field in LABELLED},
    {"spec.annotations": {"io.kubernetes.cri-o.Devices/trainer": "/dev/fuse"}},
    {"spec.env": [{"name": ".a"}, {"name": "_"}, {"name": "A.b-c"}]},
    {"spec.envFrom": [{"configMapRef": {"name": "a", "optional": True}}, {"secretRef": {"name": "a"}, "prefix": "A_"}]},
    {"spec.volumes.checkpoints": {"accessModes": ["ReadWriteOncePod"]}},
    {"spec.tolerations": [{"operator": "Exists"}, {"key": "example.com/a", "value": "b", "effect": "NoSchedule"}]},
    {"spec.tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}]},
    {"spec.volumes.additionalVolumes": [{"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]},
    {"spec.dependsOn": [{"job": "prepare"}]},
]

ACCEPTED_QUEUES: list[dict[str, Any]] = [
    {"spec.kaiQueue": "a", "spec.kaiQueuePolicy": "Reference"},
    {"spec.kaiQueue": "a", "spec.parentKaiQueue": "b"},
    {"spec.kaiResources": {"gpu": {"quota": 0.5}}},
    {"spec.kaiResources": {"cpu": {"quota": 96, "limit": "96"}, "memory": {"quota": "512Gi", "limit": -1}}},
    {"spec.kaiResources": {"cpu": {"quota": "-1", "limit": 4}}},
    {"spec.nodeResources": {"gpus": 8, "cpus": "95500m", "memory": "1.5Ti"}},
    {"spec.nodeResources": {"gpusPerNode": 8}},
    {"spec.storage": {"shmSizePerGPU": 0}},
    {"spec.podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}},
    {"spec.podTemplate": {"spec": {"containers": [{"name": "trainer"}, {"name": "sidecar"}]}}},
    {"spec.preemptMinRuntime": "1h30m", "spec.reclaimMinRuntime": "90s"},
]


def python_refuses(model: type[BaseModel], spec: dict[str, Any]) -> bool:
    try:
        return any(problems(model.model_validate(spec)))
    except ValidationError:
        return True


def named(body: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
    return changed(body, {"metadata.namespace": namespace})


async def refusal(admin: Client, kind: Kind[Any], body: dict[str, Any]) -> str:
    """What the API server says against this object."""
    with pytest.raises(Invalid) as refused:
        await admin.create(kind, named(body))
    return str(refused.value)


def published(directory: Path) -> Iterator[str]:
    """The manifests of our kinds that stand in the texts there, as they stand."""
    for file in sorted(directory.glob("00[04]*")):
        for block in re.findall(r"^```yaml\n(.*?)^```", file.read_text(), flags=re.DOTALL | re.MULTILINE):
            if "torchrun.ai/" in block:
                yield block


async def test_the_generated_crds_are_taken_without_a_warning(control_plane: ControlPlane) -> None:
    await control_plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "--warnings-as-errors", "--kustomize", str(CONFIG / "crd")
    )


@pytest.mark.parametrize(("field", "changes"), REFUSED_JOBS)
async def test_a_job_that_breaks_a_rule_is_refused_by_field(admin: Client, field: str, changes: dict[str, Any]) -> None:
    body = changed(JOB, changes)
    assert field in await refusal(admin, TORCHRUN_JOB, body)
    assert python_refuses(JobSpec, body["spec"])


@pytest.mark.parametrize(("field", "changes"), REFUSED_NAMES)
async def test_a_job_whose_name_would_clash_is_refused(admin: Client, field: str, changes: dict[str, Any]) -> None:
    assert field in await refusal(admin, TORCHRUN_JOB, changed(JOB, changes))


@pytest.mark.parametrize(("field", "changes"), REFUSED_QUEUES)
async def test_a_queue_that_breaks_a_rule_is_refused_by_field(
    admin: Client, field: str, changes: dict[str, Any]
) -> None:
    body = changed(QUEUE, changes)
    assert field in await refusal(admin, TORCHRUN_QUEUE, body)
    assert python_refuses(QueueSpec, body["spec"])


async def test_a_queue_whose_name_cannot_be_a_label_is_refused(admin: Client) -> None:
    body = changed(QUEUE, {"metadata.name": "x" * 64})
    assert "metadata.name" in await refusal(admin, TORCHRUN_QUEUE, body)


@pytest.mark.parametrize("changes", ACCEPTED_JOBS)
async def test_a_job_within_the_rules_is_taken(admin: Client, changes: dict[str, Any]) -> None:
    body = changed(JOB, changes)
    job = await admin.apply(TORCHRUN_JOB, named(body), dry_run=True)
    assert not list(problems(job.spec))


@pytest.mark.parametrize("changes", ACCEPTED_QUEUES)
async def test_a_queue_within_the_rules_is_taken(admin: Client, changes: dict[str, Any]) -> None:
    queue = await admin.apply(TORCHRUN_QUEUE, named(changed(QUEUE, changes)), dry_run=True)
    assert not list(problems(queue.spec))


IMMUTABLE: dict[str, Any] = {
    "spec.jobQueue": "other",
    "spec.numNodes": 3,
    "spec.elastic": {"minNodes": 1, "maxNodes": 4},
    "spec.command": "python other.py",
    "spec.setupCommand": "pip list",
    "spec.workingDir": "/other",
    "spec.launcher": "none",
    "spec.nprocPerNode": 2,
    "spec.distributed": {"port": 30000},
    "spec.image": "other:1",
    "spec.env": [{"name": "A", "value": "2"}],
    "spec.envFrom": [{"configMapRef": {"name": "settings"}}],
    "spec.labels": {"team": "b"},
    "spec.annotations": {"note": "b"},
    "spec.nodeSelector": {"zone": "b"},
    "spec.tolerations": [{"key": "gpu", "operator": "Exists"}],
    "spec.priorityClassName": "high",
    "spec.dependsOn": [{"job": "other"}],
    "spec.runPolicy.maxWorkerRestarts": 7,
    "spec.volumes.workspace.url": "https://git.example.com/team/other",
    "spec.volumes.workspace.ref": "other",
    "spec.volumes.workspace.source": "s3",
    "spec.volumes.workspace.secretRef": "git",
    "spec.volumes.workspace.subPath": "src",
    "spec.volumes.workspace.size": "2Gi",
    "spec.volumes.workspace.timeoutSeconds": 60,
    "spec.volumes.workspace.enabled": False,
    "spec.volumes.datasets": [{"name": "a", "claimName": "a", "mountPath": "/a"}],
    "spec.volumes.checkpoints": {"enabled": True},
    "spec.volumes.additionalVolumes": [{"name": "scratch", "emptyDir": {}}],
    "spec.volumes.additionalMounts": [{"name": "scratch", "mountPath": "/scratch"}],
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def existing(admin: Client, installed: None) -> str:
    """A job with a git workspace and one variable."""
    body = changed(
        JOB,
        {
            **workspace(**GIT),
            "metadata.name": "immutable",
            "metadata.namespace": "default",
            "spec.env": [{"name": "A", "value": "1"}],
            "spec.labels": {"team": "a"},
        },
    )
    await admin.apply(TORCHRUN_JOB, body)
    return "immutable"


def merge(changes: dict[str, Any]) -> dict[str, Any]:
    return changed({}, changes)


@pytest.mark.parametrize("path", IMMUTABLE)
async def test_what_a_job_runs_never_changes(admin: Client, existing: str, path: str) -> None:
    with pytest.raises(Invalid, match=f"{re.escape(path)}: .*is immutable"):
        await admin.merge_patch(TORCHRUN_JOB, existing, merge({path: IMMUTABLE[path]}), namespace="default")


async def test_a_field_inside_what_is_kept_unread_is_immutable_too(admin: Client, namespace: str) -> None:
    volumes = [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}]
    await admin.create(TORCHRUN_JOB, named(changed(JOB, {"spec.volumes.additionalVolumes": volumes}), namespace))
    volumes = [{"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}}]
    patch = merge({"spec.volumes.additionalVolumes": volumes})
    with pytest.raises(Invalid, match=r"volumes\.additionalVolumes is immutable"):
        await admin.merge_patch(TORCHRUN_JOB, "job", patch, namespace=namespace)


async def test_numnodes_cannot_turn_into_numgpus(admin: Client, existing: str) -> None:
    patch = merge({"spec.numNodes": None, "spec.numGPUs": 16})
    with pytest.raises(Invalid, match="numNodes cannot be added or removed"):
        await admin.merge_patch(TORCHRUN_JOB, existing, patch, namespace="default")


async def test_what_may_change_of_a_job_changes(admin: Client, existing: str) -> None:
    patch = merge(
        {
            "spec.suspend": True,
            "spec.runPolicy": {"maxRestarts": 5, "ttlSecondsAfterFinished": 60},
            "spec.queueUpdatePolicy": "NextAttempt",
            "spec.volumes.workspace.revision": "0123abcd",
        }
    )
    job = await admin.merge_patch(TORCHRUN_JOB, existing, patch, namespace="default")
    assert job.spec.suspend
    assert job.spec.volumes.workspace is not None
    assert job.spec.volumes.workspace.revision == "0123abcd"


async def test_the_largest_job_stays_within_the_cost_of_the_rules(admin: Client, namespace: str) -> None:
    largest = {
        "spec.command": "x" * 32768,
        "spec.env": [{"name": f"A{n}", "value": "v" * 3000} for n in range(256)],
        "spec.labels": {f"k{n}": "v" for n in range(64)},
        "spec.annotations": {f"k{n}": "v" * 500 for n in range(64)},
        "spec.dependsOn": [{"job": f"j{n}"} for n in range(16)],
        "spec.volumes.additionalVolumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(32)],
        **workspace(source="git", url="https://git.example.com/" + "x" * 2000, subPath="a/" * 500 + "b"),
    }
    await admin.create(TORCHRUN_JOB, named(changed(JOB, largest), namespace))
    await admin.merge_patch(TORCHRUN_JOB, "job", merge({"spec.suspend": True}), namespace=namespace)


async def test_job_without_a_workspace_takes_a_revision(admin: Client, namespace: str) -> None:
    await admin.create(TORCHRUN_JOB, named(JOB, namespace))
    patch = merge({"spec.volumes.workspace.revision": "0123abcd"})
    await admin.merge_patch(TORCHRUN_JOB, "job", patch, namespace=namespace)


async def test_an_elastic_job_scales_within_its_bounds(
    control_plane: ControlPlane, admin: Client, namespace: str
) -> None:
    await admin.create(TORCHRUN_JOB, named(changed(JOB, ELASTIC), namespace))
    await control_plane.kubectl("scale", "trj/job", "--replicas=4", "--namespace", namespace)
    job = await admin.get(TORCHRUN_JOB, "job", namespace)
    assert job.spec.num_nodes == 4
    with pytest.raises(CommandFailed, match="numNodes must be within"):
        await control_plane.kubectl("scale", "trj/job", "--replicas=5", "--namespace", namespace)


async def test_defaults_come_out(admin: Client, namespace: str) -> None:
    await admin.create(TORCHRUN_JOB, named(changed(JOB, {"spec.dependsOn": [{"job": "a"}]}), namespace))
    job = await admin.get_raw(TORCHRUN_JOB, "job", namespace)
    assert job["spec"] == JOB["spec"] | {
        "launcher": "torchrun",
        "hotReload": "Off",
        "queueUpdatePolicy": "Frozen",
        "suspend": False,
        "dependsOn": [{"job": "a", "condition": "Succeeded"}],
    }
    storage = {"workspace": {"enabled": True}, "checkpoints": {"claimName": "shared"}}
    resources = {"gpu": {"quota": 4}}
    await admin.create(
        TORCHRUN_QUEUE, named(changed(QUEUE, {"spec.storage": storage, "spec.kaiResources": resources}), namespace)
    )
    queue = await admin.get_raw(TORCHRUN_QUEUE, "queue", namespace)
    unbounded = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    assert queue["spec"] == {
        "image": "trainer:1",
        "kaiQueuePolicy": "Manage",
        "kaiResources": {"gpu": unbounded | {"quota": 4}, "cpu": unbounded, "memory": unbounded},
        "nodeResources": {"gpus": 0, "gpuResourceName": "nvidia.com/gpu"},
        "storage": {
            "workspace": {
                "enabled": True,
                "accessModes": ["ReadWriteOnce"],
                "mountPath": "/app",
                "distribution": "auto",
            },
            "checkpoints": {
                "enabled": False,
                "accessModes": ["ReadWriteOnce"],
                "claimName": "shared",
                "mountPath": "/checkpoints",
                "retain": True,
            },
        },
        "weight": 1,
        "preemption": "Never",
        "capacity": "Existing",
    }


async def test_a_pod_template_keeps_what_only_kubernetes_knows(admin: Client, namespace: str) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}, "generateName": "x"},
        "spec": {
            "hostNetwork": True,
            "containers": [{"name": "trainer", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}],
            "initContainers": [{"name": "probe", "image": "busybox:1"}],
        },
    }
    await admin.create(TORCHRUN_QUEUE, named(changed(QUEUE, {"spec.podTemplate": template}), namespace))
    queue = await admin.get_raw(TORCHRUN_QUEUE, "queue", namespace)
    assert queue["spec"]["podTemplate"] == template


async def test_a_status_is_taken_and_its_columns_show(
    control_plane: ControlPlane, admin: Client, namespace: str
) -> None:
    created = await admin.create(TORCHRUN_JOB, named(JOB, namespace))
    status = JobStatus(
        phase=Phase.RUNNING,
        conditions=(Condition("Accepted", "True", "Accepted", "", datetime(2026, 1, 1, tzinfo=UTC), 1),),
        observed_generation=1,
        job_id=created.metadata.uid,
        nodes=NodeCounts(desired=2, ready=1),
        gpus=16,
        workers_status="1/2 running",
        failure=Failure(pod="job-0-abcde", rank=0, exit_code=-9, message="x" * 4096),
    )
    body = {**named(changed(JOB, {"spec": ABSENT}), namespace), "status": msgspec.to_builtins(status)}
    written = await admin.apply(TORCHRUN_JOB, body, subresource="status")
    assert written.status == status
    shown = await control_plane.kubectl("get", "tj", "job", "--namespace", namespace, "--no-headers")
    assert shown.split()[:8] == ["job", "queue", "2", "16", "Running", "1/2", "running", "0"]


@pytest.mark.parametrize(
    "path",
    ["trj.spec", "trj.spec.numGPUs", "trj.spec.volumes.workspace.url", "trj.status", "trq.spec.kaiResources.cpu.quota"],
)
async def test_explain_says_what_a_field_does(control_plane: ControlPlane, path: str) -> None:
    text = await control_plane.kubectl("explain", path)
    assert "<empty>" not in text
    assert len(text.partition("DESCRIPTION:")[2].split()) > 5


@pytest.mark.skipif("TORCHCTL_SEEDS" not in os.environ, reason="TORCHCTL_SEEDS does not name the published manifests")
async def test_published_manifests_apply_unchanged(control_plane: ControlPlane, admin: Client, namespace: str) -> None:
    blocks = list(published(Path(os.environ["TORCHCTL_SEEDS"])))
    assert len(blocks) >= 6
    for block in blocks:
        arguments = ("apply", "--namespace", namespace, "--warnings-as-errors", "--filename=-")
        await control_plane.kubectl(*arguments, input=block)
        for body in yaml.safe_load_all(block):
            kind: Kind[Any] = TORCHRUN_JOB if body["kind"] == "TorchrunJob" else TORCHRUN_QUEUE
            live = await admin.get(kind, body["metadata"]["name"], namespace)
            assert not list(problems(live.spec))
