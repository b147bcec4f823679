"""Queues on the real control plane: their objects, their schedulers' Queues, their end, what they say of their jobs."""

import functools
import json
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from clusters import OPERATOR
from jobs import Place, a_job, a_kai_queue
from operators import operator_settings, running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONFIG_MAP, JOB, KAI_QUEUE, POD, PVC, ConfigMap, KaiQueue
from torchctl.api.phases import TERMINAL, Phase
from torchctl.api.queue import TORCHRUN_QUEUE, GpuCounts, JobCounts, QueueStatus, VolcanoQueueStatus
from torchctl.api.volcano import VOLCANO_PODGROUP, VOLCANO_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Kind
from torchctl.testing.audit import read_audit_log
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.nodekinds import STORAGE_CLASS, Pod
from torchctl.testing.volumes import PROVISIONER

CHURN = 40
"""Jobs of the churn."""


def runs_on(pod: Pod) -> bool:
    return pod.metadata.labels.get("torchrun.ai/job-name", "").startswith("long")


def fails(pod: Pod) -> bool:
    return pod.metadata.labels.get("torchrun.ai/job-name", "").startswith("fails")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(operator_account: Connection, kubelet: ScriptedKubelet) -> AsyncGenerator[Connection]:
    """Jobs called `long...` run until they are told to end, those called `fails...` fail."""
    before = kubelet.script
    kubelet.script = before.when(runs_on, Play(run_s=None)).when(fails, Play(exit_code=1))
    yield operator_account
    kubelet.script = before


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(cluster: Connection, place: Place) -> Place:
    return place


def config_map(name: str, **more: Any) -> dict[str, Any]:
    data = more.pop("data", {"a": "1"})
    return {"name": name, "template": {"apiVersion": "v1", "kind": "ConfigMap", "data": data}, **more}


def claim(name: str, size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}, **spec}
    return {"name": name, "template": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}}


async def edit(place: Place, name: str, **spec: Any) -> int:
    """Changes a queue's spec and returns once the operator has seen that."""
    changed = await place.admin.merge_patch(TORCHRUN_QUEUE, name, {"spec": spec}, namespace=place.namespace)

    async def seen() -> bool:
        return (await status_of(place, name)).observed_generation >= changed.metadata.generation

    await until(seen)
    return changed.metadata.generation


async def status_of(place: Place, name: str) -> QueueStatus:
    return (await place.admin.get(TORCHRUN_QUEUE, name, place.namespace)).status


async def map_of(place: Place, name: str) -> ConfigMap:
    return await place.admin.get(CONFIG_MAP, name, place.namespace)


async def end(place: Place, kubelet: ScriptedKubelet, job: str) -> None:
    """Lets the workers of a job end well."""
    pods = await place.admin.list(POD, namespace=place.namespace, labels=f"torchrun-job-name={job}")
    for pod in pods:
        kubelet.end(place.namespace, pod.metadata.name)
    await place.reaches(Phase.SUCCEEDED, job)


# spec.resources


@pytest.mark.proves(
    "TorchrunQueue.spec.resources[].name",
    "TorchrunQueue.spec.resources[].template",
    "TorchrunQueue.status.resources[].kind",
    "TorchrunQueue.status.resources[].name",
    "TorchrunQueue.status.resources[].ready",
)
async def test_objects_of_a_queue_are_kept_as_asked(place: Place) -> None:
    """The operator makes and repairs them and, except for claims, deletes what the queue no longer names."""
    await place.queue("stocked", resources=[config_map("stock"), claim("store")])
    await place.condition("ResourcesReady", "ResourcesReady", "stocked", kind=TORCHRUN_QUEUE)
    made = await map_of(place, "stock")
    assert [(ref.kind, ref.name, ref.controller) for ref in made.metadata.owner_references] == [
        ("TorchrunQueue", "stocked", True)
    ]
    assert made.data == {"a": "1"}
    assert (await place.admin.get(PVC, "store", place.namespace)).metadata.owner_references == ()
    assert [(state.kind, state.name, state.ready) for state in (await status_of(place, "stocked")).resources] == [
        ("ConfigMap", "stock", True),
        ("PersistentVolumeClaim", "store", True),
    ]

    async def restored() -> bool:
        return await place.exists(CONFIG_MAP, "stock") and (await map_of(place, "stock")).data == {"a": "1"}

    await place.admin.merge_patch(CONFIG_MAP, "stock", {"data": {"a": "drift"}}, namespace=place.namespace)
    await until(restored)
    await place.admin.delete(CONFIG_MAP, "stock", namespace=place.namespace)
    await until(restored)

    await edit(place, "stocked", resources=[config_map("stock", data={"a": "2"}), claim("store")])
    assert (await map_of(place, "stock")).data == {"a": "2"}
    await edit(place, "stocked", resources=[])
    await place.gone(CONFIG_MAP, "stock")
    assert await place.exists(PVC, "store")
    found = await place.condition("ResourcesReady", "NoResources", "stocked", kind=TORCHRUN_QUEUE)
    assert found.status == "True"


async def test_deleted_queue_leaves_only_its_claims_to_its_successor(place: Place) -> None:
    resources = [config_map("heirloom"), claim("estate")]
    await place.queue("mortal", resources=resources)
    await place.condition("ResourcesReady", "ResourcesReady", "mortal", kind=TORCHRUN_QUEUE)
    before = await place.admin.get(PVC, "estate", place.namespace)
    await place.admin.delete(TORCHRUN_QUEUE, "mortal", namespace=place.namespace)
    await place.gone(TORCHRUN_QUEUE, "mortal")
    await place.gone(CONFIG_MAP, "heirloom", timeout_s=90)  # the garbage collector hears of new kinds every 30 s
    await place.queue("mortal", resources=resources)
    await place.condition("ResourcesReady", "ResourcesReady", "mortal", kind=TORCHRUN_QUEUE)
    after = await place.admin.get(PVC, "estate", place.namespace)
    assert (after.metadata.uid, after.metadata.owner_references) == (before.metadata.uid, ())


@pytest.mark.proves("TorchrunQueue.spec.resources[].immutable")
async def test_an_immutable_object_is_never_written_again(place: Place) -> None:
    await place.queue("fixed", resources=[config_map("stone", immutable=True)])
    await place.condition("ResourcesReady", "ResourcesReady", "fixed", kind=TORCHRUN_QUEUE)
    await place.admin.merge_patch(CONFIG_MAP, "stone", {"data": {"a": "carved"}}, namespace=place.namespace)
    version = (await map_of(place, "stone")).metadata.resource_version
    await edit(place, "fixed", resources=[config_map("stone", immutable=True, data={"a": "2"})])
    assert (await map_of(place, "stone")).metadata.resource_version == version
    (state,) = (await status_of(place, "fixed")).resources
    assert (state.ready, "stays as it is" in state.message) == (True, True)
    await place.admin.delete(CONFIG_MAP, "stone", namespace=place.namespace)

    async def made_again() -> bool:
        return await place.exists(CONFIG_MAP, "stone") and (await map_of(place, "stone")).data == {"a": "2"}

    await until(made_again)


@pytest.mark.proves("TorchrunQueue.spec.resources[].nameMode")
async def test_job_keeps_the_object_that_its_prefix_stood_for(place: Place, kubelet: ScriptedKubelet) -> None:
    """A later job gets the later object."""
    trainer = {"name": "trainer", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    pod = {"volumes": [{"name": "s", "configMap": {"name": "settings"}}], "containers": [trainer]}
    entry = config_map("settings", nameMode="prefix")
    await place.queue("versions", resources=[entry], podTemplate={"spec": pod})
    await place.condition("ResourcesReady", "ResourcesReady", "versions", kind=TORCHRUN_QUEUE)
    await place.job("long-first", jobQueue="versions", numNodes=1)
    await place.reaches(Phase.RUNNING, "long-first")
    (first,) = (await status_of(place, "versions")).resources
    later = config_map("settings", nameMode="prefix", data={"a": "2"})
    await edit(place, "versions", resources=[later])
    (second,) = (await status_of(place, "versions")).resources
    assert first.name != second.name
    await place.job("long-second", jobQueue="versions", numNodes=1)
    await place.reaches(Phase.RUNNING, "long-second")
    for job, state, data in (("long-first", first, {"a": "1"}), ("long-second", second, {"a": "2"})):
        spec = (await place.admin.get_raw(JOB, job, place.namespace))["spec"]["template"]["spec"]
        assert spec["volumes"][0]["configMap"]["name"] == state.name
        assert spec["containers"][0]["envFrom"][0]["configMapRef"]["name"] == state.name
        assert (await map_of(place, state.name)).data == data
    await end(place, kubelet, "long-first")
    assert await place.exists(CONFIG_MAP, first.name), "the second may be older than it looks"
    await end(place, kubelet, "long-second")
    await place.gone(CONFIG_MAP, first.name)
    assert await place.exists(CONFIG_MAP, second.name)


@pytest.mark.proves("TorchrunQueue.status.resources[].message")
async def test_queue_reports_objects_that_it_cannot_make(place: Place) -> None:
    """Objects of others stay as they are."""
    theirs: dict[str, Kind[Any]] = {"taken": CONFIG_MAP, "taken-claim": PVC}
    for name, kind in theirs.items():
        body: dict[str, Any] = {"apiVersion": "v1", "kind": kind.kind}
        body["metadata"] = {"name": name, "namespace": place.namespace, "labels": {"theirs": "yes"}}
        body |= {"data": {"b": "theirs"}} if kind == CONFIG_MAP else {"spec": claim("x")["template"]["spec"]}
        await place.admin.create(kind, body)
    before = [await map_of(place, "taken"), (await place.admin.get(PVC, "taken-claim", place.namespace)).metadata.uid]
    long = config_map("broken", data={"no such key!": "x"})
    await place.queue("troubled", resources=[config_map("taken"), claim("taken-claim"), long, config_map("well")])
    found = await place.condition("ResourcesReady", "ForeignObject", "troubled", kind=TORCHRUN_QUEUE)
    assert (found.status, "left as it is" in found.message, "2 more" in found.message) == ("False", True, True)
    states = {state.name: state for state in (await status_of(place, "troubled")).resources}
    assert [name for name, state in states.items() if state.ready] == ["well"]
    assert "no such key!" in states["broken"].message
    assert (await place.condition("Ready", "NotReady", "troubled", kind=TORCHRUN_QUEUE)).status == "False"
    await edit(place, "troubled", resources=[])
    await place.gone(CONFIG_MAP, "well")
    after = [await map_of(place, "taken"), (await place.admin.get(PVC, "taken-claim", place.namespace)).metadata.uid]
    assert after == before


async def test_claim_grows_if_its_storage_class_allows_expansion(place: Place, admin: Client) -> None:
    """Otherwise the refusal is a condition."""
    grows = f"{place.namespace}-grows"
    body: dict[str, Any] = {"apiVersion": STORAGE_CLASS.api_version, "kind": STORAGE_CLASS.kind}
    body |= {"metadata": {"name": grows}, "provisioner": PROVISIONER, "allowVolumeExpansion": True}
    await admin.create(STORAGE_CLASS, body)
    await place.queue("growing", resources=[claim("elastic", storageClassName=grows), claim("rigid")])
    for name in ("elastic", "rigid"):
        await until(functools.partial(_is_bound, place, name))
    await edit(place, "growing", resources=[claim("elastic", "2Gi", storageClassName=grows), claim("rigid", "2Gi")])
    found = await place.condition("ResourcesReady", "Refused", "growing", kind=TORCHRUN_QUEUE)
    assert "PersistentVolumeClaim rigid" in found.message
    elastic = await admin.get(PVC, "elastic", place.namespace)
    assert elastic.spec["resources"]["requests"]["storage"] == "2Gi"
    await admin.delete(STORAGE_CLASS, grows)


async def _is_bound(place: Place, name: str) -> bool:
    return await place.exists(PVC, name) and (
        (await place.admin.get(PVC, name, place.namespace)).status.phase == "Bound"
    )


# KAI


async def kai_queue(place: Place, name: str) -> KaiQueue:
    return await place.admin.get(KAI_QUEUE, name)


@pytest.mark.proves(
    "TorchrunQueue.spec.kaiQueue",
    "TorchrunQueue.spec.parentKaiQueue",
    "TorchrunQueue.spec.kaiPriority",
    "TorchrunQueue.spec.preemptMinRuntime",
    "TorchrunQueue.spec.reclaimMinRuntime",
    "TorchrunQueue.spec.kaiResources.gpu.quota",
    "TorchrunQueue.spec.kaiResources.gpu.limit",
    "TorchrunQueue.spec.kaiResources.gpu.overQuotaWeight",
    "TorchrunQueue.spec.kaiResources.cpu.quota",
    "TorchrunQueue.spec.kaiResources.cpu.limit",
    "TorchrunQueue.spec.kaiResources.cpu.overQuotaWeight",
    "TorchrunQueue.spec.kaiResources.memory.quota",
    "TorchrunQueue.spec.kaiResources.memory.limit",
    "TorchrunQueue.spec.kaiResources.memory.overQuotaWeight",
    "TorchrunQueue.status.kaiQueue.name",
    "TorchrunQueue.status.kaiQueue.uid",
    "TorchrunQueue.status.kaiQueue.allocated",
    "TorchrunQueue.status.kaiQueue.requested",
)
async def test_kai_queue_has_all_fields_in_kais_units(place: Place) -> None:
    """The numbers of the KAI Queue come back as the status of the queue."""
    name, parent = f"{place.namespace}-all", f"{place.namespace}-parent"
    await place.queue(
        "all",
        kaiQueue=name,
        parentKaiQueue=parent,
        kaiPriority=150,
        preemptMinRuntime="10m",
        reclaimMinRuntime="1h30m",
        kaiResources={
            "gpu": {"quota": 0.5, "limit": 16, "overQuotaWeight": 2},
            "cpu": {"quota": "1500m", "limit": 96},
            "memory": {"quota": "1Gi", "limit": "2T", "overQuotaWeight": 0},
        },
    )
    found = await place.condition("KaiQueueReady", "ParentNotFound", "all", kind=TORCHRUN_QUEUE)
    assert parent in found.message
    assert not await place.exists(KAI_QUEUE, name)
    await place.admin.create(KAI_QUEUE, a_kai_queue(parent))
    await place.condition("Ready", "Ready", "all", kind=TORCHRUN_QUEUE)
    made = await kai_queue(place, name)
    assert made.spec == {
        "parentQueue": parent,
        "priority": 150,
        "preemptMinRuntime": "10m",
        "reclaimMinRuntime": "1h30m",
        "resources": {
            "gpu": {"quota": 0.5, "limit": 16, "overQuotaWeight": 2},
            "cpu": {"quota": 1500, "limit": 96_000, "overQuotaWeight": 1},
            "memory": {"quota": 1073.741824, "limit": 2_000_000, "overQuotaWeight": 0},
        },
    }
    amounts = {"allocated": {"nvidia.com/gpu": "8", "cpu": "500m"}, "requested": {"memory": "2048Mi"}}
    await place.admin.merge_patch(KAI_QUEUE, name, {"status": amounts}, subresource="status")

    async def told() -> bool:
        status = (await status_of(place, "all")).kai_queue
        return status is not None and bool(status.requested)

    await until(told)
    status = (await status_of(place, "all")).kai_queue
    assert status is not None
    assert (status.name, status.uid) == (name, made.metadata.uid)
    assert (status.allocated, status.requested) == ({"nvidia.com/gpu": "8", "cpu": "500m"}, {"memory": "2Gi"})
    await edit(place, "all", kaiPriority=None, kaiResources=None)
    changed = await kai_queue(place, name)
    assert "priority" not in changed.spec
    assert changed.spec["resources"]["gpu"] == {"quota": -1, "limit": -1, "overQuotaWeight": 1}


@pytest.mark.proves("TorchrunQueue.spec.kaiQueuePolicy")
async def test_kai_queue_is_handed_over_from_manage_to_reference(
    place: Place, control_plane: ControlPlane, kubelet: ScriptedKubelet
) -> None:
    """The KAI Queue stays as it is, and the operator does not touch it any more."""
    name = f"{place.namespace}-handed"
    await place.queue("giver", kaiQueue=name, kaiPriority=7)
    await place.condition("Ready", "Ready", "giver", kind=TORCHRUN_QUEUE)
    await place.job("long-there", jobQueue="giver", numNodes=1)
    await place.reaches(Phase.RUNNING, "long-there")
    before = await kai_queue(place, name)
    await edit(place, "giver", kaiQueuePolicy="Reference")
    after = await kai_queue(place, name)
    assert (after.metadata.uid, after.spec) == (before.metadata.uid, before.spec)
    assert (after.metadata.labels, after.metadata.annotations) == ({}, {})
    manifest = msgspec.json.encode(a_kai_queue(name, priority=9)).decode()
    await control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f-", input=manifest)
    await place.condition("KaiQueueReady", "KaiQueueReady", "giver", kind=TORCHRUN_QUEUE)
    await edit(place, "giver", kaiQueuePolicy="Manage")
    found = await place.condition("KaiQueueReady", "Conflict", "giver", kind=TORCHRUN_QUEUE)
    assert "belongs to somebody else" in found.message
    await edit(place, "giver", kaiQueuePolicy="Reference")
    await end(place, kubelet, "long-there")
    await place.admin.delete(TORCHRUN_QUEUE, "giver", namespace=place.namespace)
    await place.gone(TORCHRUN_QUEUE, "giver")
    assert (await kai_queue(place, name)).spec["priority"] == 9
    await place.admin.delete(KAI_QUEUE, name)


async def test_kai_queue_annotated_with_the_uid_is_adopted(place: Place) -> None:
    name = f"{place.namespace}-adopted"
    await place.admin.create(KAI_QUEUE, a_kai_queue(name, priority=9))
    await place.queue("taker", kaiQueue=name)
    await place.condition("KaiQueueReady", "Conflict", "taker", kind=TORCHRUN_QUEUE)
    uid = (await place.admin.get(TORCHRUN_QUEUE, "taker", place.namespace)).metadata.uid
    claim = {"metadata": {"annotations": {"torchrun.ai/queue-uid": uid}}}
    await place.admin.merge_patch(KAI_QUEUE, name, claim)
    await place.condition("KaiQueueReady", "KaiQueueReady", "taker", kind=TORCHRUN_QUEUE)
    await place.admin.delete(TORCHRUN_QUEUE, "taker", namespace=place.namespace)
    await place.gone(KAI_QUEUE, name)


async def test_renamed_kai_queue_stays_until_its_jobs_end(place: Place, kubelet: ScriptedKubelet) -> None:
    old, new = f"{place.namespace}-old", f"{place.namespace}-new"
    await place.queue("moving", kaiQueue=old)
    await place.job("long-moving", jobQueue="moving", numNodes=1)
    await place.reaches(Phase.RUNNING, "long-moving")
    await edit(place, "moving", kaiQueue=new)
    await place.condition("Ready", "Ready", "moving", kind=TORCHRUN_QUEUE)
    assert await place.exists(KAI_QUEUE, old)
    await end(place, kubelet, "long-moving")
    await place.gone(KAI_QUEUE, old)
    assert await place.exists(KAI_QUEUE, new)


async def test_kai_queue_stays_for_jobs_of_queues_that_refer(place: Place, kubelet: ScriptedKubelet) -> None:
    """Two TorchrunQueues with one KAI Queue: the one that made it goes once the other's job has ended."""
    name = f"{place.namespace}-lent"
    await place.queue("lender", kaiQueue=name)
    await place.condition("Ready", "Ready", "lender", kind=TORCHRUN_QUEUE)
    await place.queue("guest", kaiQueue=name, kaiQueuePolicy="Reference")
    await place.job("long-guest", jobQueue="guest", numNodes=1)
    await place.reaches(Phase.RUNNING, "long-guest")
    await place.admin.delete(TORCHRUN_QUEUE, "lender", namespace=place.namespace)
    found = await place.condition("KaiQueueReady", "Deleting", "lender", kind=TORCHRUN_QUEUE)
    assert found.message == "the KAI Queue is kept until 1 unfinished job ends: long-guest"
    assert await place.exists(KAI_QUEUE, name)
    await end(place, kubelet, "long-guest")
    await place.gone(TORCHRUN_QUEUE, "lender")
    assert not await place.exists(KAI_QUEUE, name)


# Its Volcano Queue


@pytest.mark.proves(
    "TorchrunQueue.spec.scheduling.volcanoQueuePolicy",
    "TorchrunQueue.status.volcanoQueue.name",
    "TorchrunQueue.status.volcanoQueue.uid",
    "TorchrunQueue.status.volcanoQueue.state",
)
async def test_managed_volcano_queue_lives_as_long_as_its_queue(
    place: Place, control_plane: ControlPlane, kubelet: ScriptedKubelet
) -> None:
    """It is put right, it outlives its TorchrunQueue until the job that runs in it has ended, and then it goes."""
    name = f"{place.namespace}-made"
    scheduling = {"volcanoQueue": name, "volcanoQueuePolicy": "Manage"}
    await place.queue("maker", scheduling=scheduling, weight=3, quota={"gpus": 16}, nodeResources={"gpus": 8})
    await place.condition("VolcanoQueueReady", "VolcanoQueueReady", "maker", kind=TORCHRUN_QUEUE)
    await place.job("long-made", jobQueue="maker", numNodes=1)
    await place.reaches(Phase.RUNNING, "long-made")
    (group,) = await place.admin.list(VOLCANO_PODGROUP, namespace=place.namespace)
    assert group.spec["queue"] == name
    made = ("queues.scheduling.volcano.sh", name)
    await control_plane.kubectl("patch", *made, "--type=merge", '--patch={"spec":{"weight":99}}')

    async def is_put_right() -> bool:
        spec = json.loads(await control_plane.kubectl("get", *made, "-ojson"))["spec"]
        return (spec["weight"], spec["capability"]) == (3, {"nvidia.com/gpu": "16"})

    await until(is_put_right)
    opened = ("--subresource=status", "--type=merge", '--patch={"status":{"state":"Open"}}')
    await control_plane.kubectl("patch", *made, *opened)

    async def is_recorded() -> bool:
        recorded = (await place.admin.get(TORCHRUN_QUEUE, "maker", place.namespace)).status.volcano_queue
        found = await place.admin.get(VOLCANO_QUEUE, name)
        return recorded == VolcanoQueueStatus(name, found.metadata.uid, "Open")

    await until(is_recorded)
    await place.queue("thief", scheduling=scheduling)
    said = await place.condition("VolcanoQueueReady", "Conflict", "thief", kind=TORCHRUN_QUEUE)
    assert f"belongs to {place.namespace}/maker" in said.message
    await place.job("robbed", jobQueue="thief", numNodes=1)
    assert "belongs to" in (await place.condition("QueueFound", "QueueNotReady", "robbed")).message
    await place.admin.delete(TORCHRUN_QUEUE, "maker", namespace=place.namespace)
    await place.condition("VolcanoQueueReady", "Deleting", "maker", kind=TORCHRUN_QUEUE)
    assert await place.exists(VOLCANO_QUEUE, name)
    await end(place, kubelet, "long-made")
    await place.gone(TORCHRUN_QUEUE, "maker")
    await place.condition("VolcanoQueueReady", "VolcanoQueueReady", "thief", kind=TORCHRUN_QUEUE)
    await place.reaches(Phase.SUCCEEDED, "robbed")


# A queue's life, and its jobs'


async def test_queue_deleted_under_its_jobs_holds_only_running_ones(place: Place, kubelet: ScriptedKubelet) -> None:
    name = f"{place.namespace}-leaving"
    spec: dict[str, Any] = {"kaiQueue": name, "resources": [config_map("left")]}
    await place.queue("leaving", **spec)
    await place.job("long-held", jobQueue="leaving", numNodes=1)
    await place.reaches(Phase.RUNNING, "long-held")
    await place.admin.delete(TORCHRUN_QUEUE, "leaving", namespace=place.namespace)
    await place.condition("KaiQueueReady", "Deleting", "leaving", kind=TORCHRUN_QUEUE)
    await place.job("late", jobQueue="leaving", numNodes=1)
    found = await place.condition("QueueFound", "QueueNotReady", "late")
    assert "create it again" in found.message
    assert await place.exists(KAI_QUEUE, name)
    assert await place.exists(CONFIG_MAP, "left")
    await end(place, kubelet, "long-held")
    await place.gone(TORCHRUN_QUEUE, "leaving")
    assert not await place.exists(KAI_QUEUE, name)
    await place.condition("QueueFound", "QueueNotFound", "late")
    await place.queue("leaving", **spec)
    await place.reaches(Phase.SUCCEEDED, "late")


async def test_queue_without_objects_goes_at_once(place: Place, kubelet: ScriptedKubelet) -> None:
    """The queue's jobs end as they began, with their frozen template."""
    await place.queue("plain")
    await place.job("long-plain", jobQueue="plain", numNodes=1)
    await place.reaches(Phase.RUNNING, "long-plain")
    await place.admin.delete(TORCHRUN_QUEUE, "plain", namespace=place.namespace)
    await place.gone(TORCHRUN_QUEUE, "plain")
    found = await place.condition("QueueFound", "QueueNotFound", "long-plain")
    assert "goes on with its frozen template" in found.message
    await end(place, kubelet, "long-plain")


@pytest.mark.proves(
    "TorchrunQueue.status.jobs.running",
    "TorchrunQueue.status.jobs.succeeded",
    "TorchrunQueue.status.jobs.failed",
    "TorchrunQueue.status.gpus.requested",
    "TorchrunQueue.status.gpus.running",
)
async def test_counts_are_right_after_any_churn(
    cluster: Connection, admin: Client, namespace: str, control_plane: ControlPlane, report: Callable[[str], None]
) -> None:
    """The counts cost one write a second at most."""
    place, dice = Place(admin, namespace), random.Random(7)
    queues = ("one", "two")
    settings = operator_settings(namespace)
    settings = replace(settings, operator=replace(settings.operator, queue_status_period_s=1.0))
    start, begun = control_plane.audit_log.stat().st_size, time.monotonic()
    async with running_operator(cluster, namespace, settings):
        for name in queues:
            await place.queue(name, nodeResources={"gpus": 1})
        for number in range(CHURN):
            kind = dice.choice(("long", "short", "fails", "asks-too-much"))
            spec: dict[str, Any] = {"jobQueue": dice.choice((*queues, "none")), "runPolicy": {"maxRestarts": 0}}
            spec |= {"numNodes": None, "numGPUs": 0} if kind == "asks-too-much" else {"numNodes": dice.choice((1, 2))}
            if kind == "asks-too-much":
                spec["nodeSelector"] = {"disk": "none-has-this"}
            await admin.create(TORCHRUN_JOB, a_job(namespace, f"{kind}-{number}", **spec))
            if dice.random() < 0.3:
                jobs = await admin.list(TORCHRUN_JOB, namespace=namespace)
                await admin.delete(TORCHRUN_JOB, dice.choice(jobs).metadata.name, namespace=namespace)
        await until(lambda: _are_settled(place), timeout_s=120)
        for name in queues:
            await until(functools.partial(_is_counted, place, name))
    writes = Counter(
        request.object_ref.name
        for request in read_audit_log(control_plane.audit_log, start)
        if request.user.username == OPERATOR
        and request.is_write
        and request.object_ref is not None
        and (request.object_ref.namespace, request.object_ref.resource) == (namespace, TORCHRUN_QUEUE.plural)
    )
    took = time.monotonic() - begun
    report(
        f"churn of {CHURN} jobs in {len(queues)} queues, {took:.0f} s: {sum(writes.values())} writes of their status"
    )
    assert max(writes.values()) <= 2 + took, "besides that of its start, one for each second"


async def _are_settled(place: Place) -> bool:
    """Whether every job is where it is to stay."""
    jobs = await place.admin.list(TORCHRUN_JOB, namespace=place.namespace)
    return all(job.status.phase in _END[job.metadata.name.rstrip("0123456789")] for job in jobs)


_END: dict[str, tuple[str, ...]] = {
    "long-": (Phase.RUNNING, Phase.PENDING),
    "short-": (Phase.SUCCEEDED, Phase.PENDING),
    "fails-": (Phase.FAILED, Phase.PENDING),
    "asks-too-much-": (Phase.STARTING, Phase.PENDING),
}
"""Pending is a job of the queue that does not exist."""


async def _is_counted(place: Place, queue: str) -> bool:
    """Whether the status is what a person counts."""
    jobs = [
        job.status
        for job in await place.admin.list(TORCHRUN_JOB, namespace=place.namespace)
        if job.spec.job_queue == queue
    ]
    phases = Counter(status.phase for status in jobs)
    counted = JobCounts(
        pending=phases["Pending"] + phases[""],
        syncing=phases["Syncing"],
        queued=phases["Queued"],
        running=phases["Starting"] + phases["Running"] + phases["Restarting"],
        suspended=phases["Suspended"],
        succeeded=phases["Succeeded"],
        failed=phases["Failed"],
    )
    asking = [status for status in jobs if status.phase not in (*TERMINAL, "Suspended")]
    gpus = GpuCounts(
        requested=sum(status.gpus for status in asking),
        running=sum(status.gpus for status in asking if status.phase == "Running"),
    )
    status = await status_of(place, queue)
    return (status.jobs, status.gpus) == (counted, gpus)
