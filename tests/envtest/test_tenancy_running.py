"""Attacks by way of the operator: what it does, with its own rights, for people who hold few.

The numbers are those of docs/design/tenancy.md. What the API server refuses by itself is in test_tenancy.py.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest
import pytest_asyncio
from clusters import clear, quota_noted
from jobs import Place, a_job, a_kai_queue, a_queue
from operators import background_operator, running_operator
from tenants import SECRET, Team, team
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONFIG_MAP, CONTROLLER_REVISION, JOB, KAI_QUEUE, POD, PVC
from torchctl.api.phases import TERMINAL, Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.job.steps import workers as steps_workers
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import EVENT, Kind
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.faults import is_watch
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.proxy import FaultProxy

Json = dict[str, Any]
GIT = {"source": "git", "url": "https://git.example.com/team/code.git"}
RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/enforce-version": "latest",
}
WINDOW_S = 5.0


@dataclass(frozen=True)
class Teams:
    """Two teams, neither of which knows the other, and what their operators ask the API server."""

    first: Team
    second: Team
    proxy: FaultProxy


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def teams(
    control_plane: ControlPlane, admin: Client, operator_account: Connection, kubelet: ScriptedKubelet
) -> AsyncGenerator[Teams]:
    """Two namespaces in which every pod must be a restricted one."""
    async with AsyncExitStack() as stack:
        operator = await stack.enter_async_context(connect(operator_account))
        proxy = await stack.enter_async_context(FaultProxy(control_plane.connection()))
        found = []
        for hint in ("first", "second"):
            namespace = fresh_name(f"tenancy-{hint}")
            await create_namespace(admin, namespace, RESTRICTED)
            found.append(await stack.enter_async_context(team(control_plane, admin, operator, namespace)))
            await stack.enter_async_context(background_operator(proxy.connection(operator_account), namespace))
            await found[-1].queue()
        await admin.create(KAI_QUEUE, a_kai_queue("department"))
        yield Teams(found[0], found[1], proxy)
        for each in found:
            await clear(admin, each.namespace)
        await admin.delete(KAI_QUEUE, "department")


async def define(here: Team, role: str, name: str, **spec: Any) -> None:
    await here[role].create(TORCHRUN_QUEUE, a_queue(here.namespace, name, **spec))


async def submit(here: Team, role: str, name: str, **spec: Any) -> None:
    await here[role].create(TORCHRUN_JOB, a_job(here.namespace, name, **spec))


async def test_s01_kai_queue_of_another_team_is_not_used(teams: Teams) -> None:
    """A team names the KAI Queue of another one as its own: with another parent, without a limit."""
    name = f"{teams.first.namespace}-gpus"
    await define(
        teams.first, "delegate", "gpus", kaiQueue=name, parentKaiQueue="department", kaiResources={"gpu": {"limit": 8}}
    )
    await teams.first.condition("KaiQueueReady", "KaiQueueReady", "gpus", kind=TORCHRUN_QUEUE)
    before = await teams.first.admin.get(KAI_QUEUE, name)

    await define(teams.second, "delegate", "gpus", kaiQueue=name, parentKaiQueue="department")
    found = await teams.second.condition("KaiQueueReady", "Conflict", "gpus", kind=TORCHRUN_QUEUE)
    assert f"belongs to {teams.first.namespace}/gpus" in found.message
    await submit(teams.second, "submitter", "guest", jobQueue="gpus")
    await teams.second.condition("QueueFound", "QueueNotReady", "guest")
    assert not await teams.second.exists(JOB, "guest")
    assert await teams.first.admin.get(KAI_QUEUE, name) == before


async def test_s02_deleted_queue_takes_only_its_own_kai_queue(teams: Teams) -> None:
    """Two queues of one name in two namespaces, one of them deleted."""
    name = f"{teams.first.namespace}-kept"
    await define(teams.first, "delegate", "kept", kaiQueue=name, parentKaiQueue="department")
    await teams.first.condition("KaiQueueReady", "KaiQueueReady", "kept", kind=TORCHRUN_QUEUE)
    before = await teams.first.admin.get(KAI_QUEUE, name)
    await define(teams.second, "delegate", "kept", kaiQueue=name, parentKaiQueue="department")
    await teams.second.condition("KaiQueueReady", "Conflict", "kept", kind=TORCHRUN_QUEUE)
    await teams.second["delegate"].delete(TORCHRUN_QUEUE, "kept", namespace=teams.second.namespace)
    await teams.second.gone(TORCHRUN_QUEUE, "kept")
    assert await teams.first.admin.get(KAI_QUEUE, name) == before
    await teams.first["delegate"].delete(TORCHRUN_QUEUE, "kept", namespace=teams.first.namespace)
    await teams.first.gone(KAI_QUEUE, name)


HOSTILE = {
    "name": "evil",
    "generateName": "evil-",
    "namespace": "kube-system",
    "uid": "0",
    "resourceVersion": "1",
    "labels": {"team": "vision", "torchrun.ai/job-uid": "0", "kai.scheduler/queue": "other", "job-name": "other"},
    "annotations": {"note": "a", "torchrun.ai/queue-uid": "0", "volume.kubernetes.io/selected-node": "control-plane"},
    "finalizers": ["example.com/for-ever"],
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "0", "controller": True}
    ],
}


async def test_s04_template_sets_no_identity_and_no_labels_of_ours(teams: Teams) -> None:
    """The metadata of a queue's further objects, written so that they land elsewhere, stay for ever or are taken for
    what they are not."""
    here = teams.first
    content: Mapping[str, Json] = {
        "ConfigMap": {"data": {"a": "b"}},
        "PersistentVolumeClaim": {
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound"},
        },
    }
    resources = [
        {"name": f"made-{kind.lower()}", "template": {"apiVersion": "v1", "kind": kind, "metadata": HOSTILE, **more}}
        for kind, more in content.items()
    ]
    await define(here, "developer", "makes", resources=resources)
    queue = await here.admin.get(TORCHRUN_QUEUE, "makes", here.namespace)
    await here.condition("ResourcesReady", "ResourcesReady", "makes", kind=TORCHRUN_QUEUE)
    kinds: tuple[Kind[Any], ...] = (CONFIG_MAP, PVC)
    for kind in kinds:
        made = (await here.admin.get_raw(kind, f"made-{kind.kind.lower()}", here.namespace))["metadata"]
        assert made["labels"].pop("team") == "vision"
        assert made["annotations"]["note"] == "a"
        assert "0" not in (made["uid"], made["labels"].get("torchrun.ai/job-uid"))
        assert {"kai.scheduler/queue", "job-name", "torchrun.ai/job-uid"} & set(made["labels"]) == set()
        assert {"torchrun.ai/queue-uid", "volume.kubernetes.io/selected-node"} & set(made["annotations"]) == set()
        assert "example.com/for-ever" not in made.get("finalizers", [])
        assert {owner["uid"] for owner in made.get("ownerReferences", [])} <= {queue.metadata.uid}


async def workers(here: Team, job: str) -> list[Json]:
    """The worker pods of a job, whole, once there are any."""

    async def look() -> list[str]:
        labels = f"torchrun-job-name={job},torchrun.ai/role=worker"
        return [pod.metadata.name for pod in await here.admin.list(POD, namespace=here.namespace, labels=labels)]

    return [await here.admin.get_raw(POD, name, here.namespace) for name in await until(look)]


async def test_s05_no_pod_has_a_token_that_nobody_asked_for(teams: Teams) -> None:
    """The namespace's default account may have got rights; its token is in no pod of a job."""
    here = teams.first
    await submit(here, "submitter", "tokenless", volumes={"workspace": GIT})
    await until(lambda: here.exists(POD, "tokenless-sync-0"))  # it goes with the end of the job
    sync = await here.admin.get_raw(POD, "tokenless-sync-0", here.namespace)
    await here.reaches(Phase.SUCCEEDED, "tokenless")
    for pod in (sync, *await workers(here, "tokenless")):
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not any("projected" in volume for volume in pod["spec"].get("volumes", []))


async def test_s11_template_labels_cannot_move_pods_to_another_queue(teams: Teams) -> None:
    """A queue's podTemplate with the labels and annotations by which pods are counted, grouped and found."""
    here = teams.first
    keys = ("kai.scheduler/queue", "pod-group-name", "torchrun.ai/job-uid", "torchrun-job-name")
    stolen = dict.fromkeys(keys, "other")
    await define(here, "developer", "labelled", podTemplate={"metadata": {"labels": stolen, "annotations": stolen}})
    await submit(here, "submitter", "labelled", jobQueue="labelled", labels={"team": "vision"})
    for pod in await workers(here, "labelled"):
        metadata = pod["metadata"]
        assert metadata["labels"]["team"] == "vision"
        assert "other" not in (*metadata["labels"].values(), *metadata["annotations"].values())


async def test_s12_foreign_object_is_neither_adopted_nor_counted(teams: Teams) -> None:
    """A Job of the name that the workers' Job must have, made before it and already done."""
    here = teams.first
    pod = {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "trainer",
                "image": "evil:1",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "squatted"},
        "spec": {"template": {"spec": pod}},
    }
    made = await here["developer"].create(JOB, body, here.namespace)

    async def done() -> bool:
        return (await here.admin.get(JOB, "squatted", here.namespace)).status.succeeded == 1

    await until(done)
    await submit(here, "submitter", "squatted", numNodes=1)
    found = await here.condition("WorkersReady", "ForeignObject", "squatted")
    assert "delete or rename it" in found.message
    left = await here.admin.get(JOB, "squatted", here.namespace)
    assert (left.metadata.uid, left.metadata.labels.get("torchrun.ai/job-uid")) == (made.metadata.uid, None)
    job = await here.admin.get(TORCHRUN_JOB, "squatted", here.namespace)
    assert job.status.phase not in TERMINAL


async def test_s12_forged_template_is_not_run(admin: Client, namespace: str, operator_account: Connection) -> None:
    """A job's ControllerRevision, taken away and made anew with another image, by somebody whom no policy holds."""
    here = Place(admin, namespace)
    async with running_operator(operator_account, namespace):
        await here.queue()
        await here.job("sealed", suspend=True)
        await here.reaches(Phase.SUSPENDED, "sealed")

        async def revision() -> str:
            """Its name, once it is there: status names it before it is made."""
            name = (await admin.get(TORCHRUN_JOB, "sealed", namespace)).status.queue_revision
            return name if name and await here.exists(CONTROLLER_REVISION, name) else ""

        name = await until(revision)
    body = await admin.get_raw(CONTROLLER_REVISION, name, namespace)
    kept = {field: body["metadata"][field] for field in ("name", "labels", "annotations", "ownerReferences")}
    await admin.delete(CONTROLLER_REVISION, name, namespace=namespace)
    await admin.create(CONTROLLER_REVISION, {**body, "metadata": kept, "data": _with_image(body["data"])}, namespace)
    async with running_operator(operator_account, namespace):
        await admin.merge_patch(TORCHRUN_JOB, "sealed", {"spec": {"suspend": False}}, namespace=namespace)
        found = await here.condition("Accepted", "ForeignObject", "sealed")
        assert f"ControllerRevision {name} has other data than its name says" in found.message
        assert not await here.exists(JOB, "sealed")


def _with_image(template: Json) -> Json:
    text = json.dumps(template)
    assert "trainer:1" in text
    changed: Json = json.loads(text.replace("trainer:1", "evil:1"))
    return changed


async def test_s13_a_queue_of_another_namespace_is_not_found(teams: Teams) -> None:
    """A job names a queue that only another team has."""
    await define(teams.first, "author", "theirs")
    await submit(teams.second, "submitter", "lost", jobQueue="theirs")
    await teams.second.condition("QueueFound", "QueueNotFound", "lost")


async def test_s21_a_secret_that_a_job_uses_is_shown_nowhere(
    teams: Teams, control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    """Credentials of the source and of the trainer, looked for in all that the operator writes and logs."""
    here, canary = teams.first, "canary-7f3a"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"password": canary}}
    await here.admin.create(SECRET, secret, here.namespace)
    caplog.set_level("DEBUG")
    workspace = {**GIT, "secretRef": "token"}
    await submit(
        here, "user", "secretive", volumes={"workspace": workspace}, envFrom=[{"secretRef": {"name": "token"}}]
    )
    await here.reaches(Phase.SUCCEEDED, "secretive")
    written = "torchrunjobs,jobs,pods,services,persistentvolumeclaims,controllerrevisions,events"
    assert canary not in await control_plane.kubectl("get", written, f"--namespace={here.namespace}", "-ojson")
    assert canary not in caplog.text


NONSENSE: Mapping[str, tuple[Json, Json]] = {
    "volumes-text": ({"podTemplate": {"spec": {"volumes": "x"}}}, {}),
    "env-text": ({"podTemplate": {"spec": {"containers": [{"name": "trainer", "env": "x"}]}}}, {}),
    "context-list": ({"podTemplate": {"spec": {"securityContext": []}}}, {}),
    "selector-number": ({"podTemplate": {"spec": {"nodeSelector": 7}}}, {}),
    "init-names": ({"podTemplate": {"spec": {"initContainers": [{"name": 7}]}}}, {}),
    "limits-text": ({"podTemplate": {"spec": {"containers": [{"name": "trainer", "resources": {"limits": "1"}}]}}}, {}),
    "limits-nan": (
        {
            "podTemplate": {
                "spec": {"containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": "NaN"}}}]}
            }
        },
        {},
    ),
    "affinity-number": ({"scheduling": {"affinity": {"nodeAffinity": 3}}}, {}),
    "large-numbers": ({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 1e308}}}, {}),
    "hidden-letters": ({}, {"command": "python \u2028\u202e\ufeff\U0001f600 train.py"}),
    "volume-number": ({}, {"volumes": {"additionalVolumes": [{"name": "a", "emptyDir": 7}]}}),
    "mount-of-nothing": ({}, {"volumes": {"additionalMounts": [{"name": "none", "mountPath": "/a"}]}}),
    "env-from-number": ({}, {"envFrom": [{"secretRef": {"name": 3}}]}),
    "value-from-nested": ({}, {"env": [{"name": "A", "valueFrom": {"x": {"y": [1, {"z": None}]}}}]}),
    "deep": ({"podTemplate": {"spec": {"a": json.loads('{"a":' * 60 + "1" + "}" * 60)}}}, {}),
}


async def test_s25_nonsense_in_open_fields_harms_only_its_author(teams: Teams) -> None:
    """Whatever fits no pod, wherever a pod may be written, all at once: the operator says so and goes on (S26 too: no
    object of one person stops the work for others)."""
    here = teams.first
    for name, (queue, job) in NONSENSE.items():
        await define(here, "developer", name, **queue)
        await submit(here, "developer", name, jobQueue=name, numNodes=1, **job)
    await submit(teams.second, "submitter", "neighbour")
    await teams.second.reaches(Phase.SUCCEEDED, "neighbour")
    await submit(here, "submitter", "after")
    await here.reaches(Phase.SUCCEEDED, "after")

    async def told(name: str) -> bool:
        job = await here.admin.get(TORCHRUN_JOB, name, here.namespace)
        return job.status.phase == Phase.SUCCEEDED or any(
            condition.status == "False" and condition.reason in ("InvalidSpec", "Refused", "QueueNotReady")
            for condition in job.status.conditions
        )

    for name in NONSENSE:
        await until(partial(told, name))


async def test_s32_priority_is_bounded_by_the_namespace_quota(teams: Teams, control_plane: ControlPlane) -> None:
    """A job names a PriorityClass that would push others aside. What bounds it for pods bounds it for ours."""
    here, name = teams.first, f"{teams.first.namespace}-high"
    await control_plane.kubectl("create", "priorityclass", name, "--value=1000000")
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [name]}
    spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-high"}, "spec": spec}
    await control_plane.kubectl("create", f"--namespace={here.namespace}", "-f-", input=json.dumps(quota))
    await quota_noted(control_plane, here.namespace, "no-high")
    await submit(here, "submitter", "urgent", priorityClassName=name)

    async def refused() -> bool:
        events = await here.admin.list(EVENT, namespace=here.namespace, fields="involvedObject.name=urgent")
        return any(event.reason == "FailedCreate" and "no-high" in event.message for event in events)

    await until(refused)
    assert not await here.admin.list(POD, namespace=here.namespace, labels="torchrun-job-name=urgent")
    await control_plane.kubectl("delete", "priorityclass", name)


def _brought(**workspace: Any) -> Json:
    return {"storage": {"workspace": {"enabled": True, **workspace}}}


QUEUES: Mapping[str, Json] = {
    "none": {},
    "shared": _brought(distribution="shared", accessModes=["ReadWriteMany"]),
    "copy": _brought(distribution="copy", accessModes=["ReadWriteMany"]),
    "serve": _brought(distribution="serve"),
    "kept": {"storage": {"checkpoints": {"enabled": True}, "shmSizePerGPU": "1Gi"}},
    "preflight": {"distributed": {"rdzvBackend": "etcd-v2"}},
}


@pytest.mark.parametrize("name", QUEUES)
async def test_s28_every_pod_is_a_restricted_one(teams: Teams, name: str) -> None:
    """Pods of ours that need more than the strictest Pod Security level would make people lower it. Each way in which
    the code reaches the workers, and all that the operator puts into a pod, runs to its end where that level is
    enforced."""
    here = teams.first
    await here.queue(f"restricted-{name}", **QUEUES[name])
    volumes = {"workspace": GIT} if "workspace" in QUEUES[name].get("storage", {}) else {}
    await submit(here, "submitter", f"restricted-{name}", jobQueue=f"restricted-{name}", volumes=volumes)
    await here.reaches(Phase.SUCCEEDED, f"restricted-{name}")


async def test_s28_template_against_pod_security_is_no_hot_loop(teams: Teams, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue whose podTemplate asks for more: the namespace's level holds for it like for any pod."""
    monkeypatch.setattr(steps_workers, "OVERDUE", timedelta(seconds=8))  # longer than the window below
    here = teams.second
    privileged = {"spec": {"containers": [{"name": "trainer", "securityContext": {"privileged": True}}]}}
    await define(here, "developer", "breaks", podTemplate=privileged)
    await submit(here, "submitter", "breaks", jobQueue="breaks", numNodes=1)
    found = await here.condition("WorkersReady", "PodsNotCreated", "breaks", timeout_s=60)
    assert 'violates PodSecurity "restricted:latest"' in found.message
    assert "privileged" in found.message
    assert not await here.admin.list(POD, namespace=here.namespace, labels="torchrun-job-name=breaks")
    before = len(teams.proxy.exchanges)
    await anyio.sleep(WINDOW_S)
    asked = [it for it in teams.proxy.exchanges[before:] if not is_watch(it) and here.namespace in it.path]
    assert len(asked) <= 2, [f"{it.method} {it.path} {it.status}" for it in asked]
