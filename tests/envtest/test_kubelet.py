"""The scripted kubelet under the real scheduler, Job controller, volume binder and garbage collector."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import anyio
import msgspec
import pytest
import pytest_asyncio

from torchctl.api.kube import JOB, POD, Job, Pod
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.codec import Added, Bookmark, Deleted, Modified
from torchctl.runtime.client.errors import AlreadyExists
from torchctl.runtime.conditions import find, is_true
from torchctl.runtime.kinds import Kind, Object, ObjectMeta
from torchctl.testing.kubelet import Play, Script, ScriptedKubelet
from torchctl.testing.nodekinds import CLAIM, NODE, POD_GROUP, STORAGE_CLASS, VOLUME, Claim, Volume
from torchctl.testing.script import SYNC_MESSAGE, inside
from torchctl.testing.volumes import PROVISIONER

TRAINER = {"name": "trainer", "image": "train:1"}


class Definition(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: dict[str, Any] = {}


CRD = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", Definition, False)


async def until(
    client: Client, kind: Kind[Any], namespace: str, name: str, met: Callable[[Any], bool], *, within_s: float = 60.0
) -> Any:
    """Follows one object until `met` holds; None stands for its absence.

    Nothing here has to be quick: volumes are looked at every 15 s, and nodes say every 10 s that they are there.
    """
    with anyio.fail_after(within_s):
        async with client.watch(
            kind, namespace=namespace, fields=f"metadata.name={name}", send_initial_events=True
        ) as stream:
            exists = False
            while True:
                match client.codec.decode_event(kind, await stream.readline(within_s)):
                    case Added(obj) | Modified(obj):
                        exists = True
                        if met(obj):
                            return obj
                    case Deleted() if met(None):
                        return None
                    case Bookmark(initial_events_end=True) if not exists and met(None):
                        return None  # it was gone before the watch began


def gone(obj: Object | None) -> bool:
    return obj is None


def phase(*phases: str) -> Callable[[Pod | None], bool]:
    return lambda pod: pod is not None and pod.status.phase in phases


def ended(job: Job | None) -> bool:
    return job is not None and any(is_true(job.status.conditions, type_) for type_ in ("Complete", "Failed"))


def pod_body(namespace: str, name: str = "p", labels: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {"restartPolicy": "Never", "containers": [TRAINER], **spec},
    }


def job_body(namespace: str, name: str = "j", *, pods: int = 2, **spec: Any) -> dict[str, Any]:
    trainer = {**TRAINER, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [trainer], **spec}},
        },
    }


def claim_body(namespace: str, name: str, class_: str | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    if class_ is not None:
        spec["storageClassName"] = class_
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


@pytest_asyncio.fixture(loop_scope="session")
async def play(kubelet: ScriptedKubelet, namespace: str) -> AsyncGenerator[Callable[[Play], None]]:
    """Sets what happens to the pods of this test's namespace."""
    before = kubelet.script

    def set_(play: Play) -> None:
        kubelet.script = Script(before.rules, before.fallback).when(inside(namespace), play)

    yield set_
    kubelet.script = before


async def test_a_job_runs_to_completion_with_the_real_job_controller(
    kubelet: ScriptedKubelet, admin: Client, namespace: str
) -> None:
    await admin.create(JOB, job_body(namespace))
    job = await until(admin, JOB, namespace, "j", ended)
    assert is_true(job.status.conditions, "Complete")
    assert job.status.completed_indexes == "0,1"


async def test_a_pod_goes_through_its_phases_in_order(kubelet: ScriptedKubelet, admin: Client, namespace: str) -> None:
    seen: list[str] = []

    def note(pod: Pod | None) -> bool:
        assert pod is not None
        states = [
            "-" if status.state.waiting else "running" if status.state.running else "done"
            for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
        ]
        step = " ".join([pod.status.phase, *states])
        if not seen or seen[-1] != step:
            seen.append(step)
        return pod.status.phase == "Succeeded"

    await admin.create(POD, pod_body(namespace, initContainers=[{"name": "init", "image": "i"}]))
    pod = await until(admin, POD, namespace, "p", note)
    order = ["Pending", "Pending - -", "Pending running -", "Running done running", "Succeeded done done"]
    assert seen == order[-len(seen) :]
    assert pod.status.pod_ip
    assert pod.status.start_time is not None
    assert is_true(pod.status.conditions, "PodScheduled")
    assert is_true(pod.status.conditions, "Initialized")
    assert not is_true(pod.status.conditions, "Ready")


async def test_a_failing_trainer_fails_its_job_with_its_exit_code(
    kubelet: ScriptedKubelet, admin: Client, namespace: str, play: Callable[[Play], None]
) -> None:
    play(Play(exit_code=42, messages={"trainer": "boom"}))
    await admin.create(JOB, job_body(namespace, pods=1))
    job = await until(admin, JOB, namespace, "j", ended)
    assert is_true(job.status.conditions, "Failed")
    (pod,) = await admin.list(POD, namespace=namespace)
    (status,) = pod.status.container_statuses or ()
    assert status.state.terminated is not None
    assert (status.state.terminated.exit_code, status.state.terminated.message) == (42, "boom")


@pytest.mark.parametrize("init", [False, True])
async def test_the_sync_pod_reports_what_it_fetched(
    kubelet: ScriptedKubelet, admin: Client, namespace: str, init: bool
) -> None:
    fetch = {"name": "fetch", "image": "torchctl"}
    spec: dict[str, Any] = {"containers": [fetch]}
    if init:
        spec = {"initContainers": [fetch], "containers": [{"name": "serve", "image": "t"}]}
    await admin.create(POD, pod_body(namespace, labels={"torchrun.ai/role": "sync"}, **spec))
    pod = await until(admin, POD, namespace, "p", phase("Running" if init else "Succeeded"))
    status = (pod.status.init_container_statuses if init else pod.status.container_statuses)[0]
    assert status.state.terminated is not None
    assert status.state.terminated.message == SYNC_MESSAGE
    assert is_true(pod.status.conditions, "Ready") is init


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CreateContainerConfigError"])
async def test_blocked_pod_shows_its_reason_and_can_be_deleted(
    kubelet: ScriptedKubelet, admin: Client, namespace: str, play: Callable[[Play], None], reason: str
) -> None:
    play(Play(blocked=reason, blocked_message="no way"))
    await admin.create(POD, pod_body(namespace))

    def blocked(pod: Pod | None) -> bool:
        statuses = (pod.status.container_statuses if pod else None) or ()
        return any(status.state.waiting is not None and status.state.waiting.reason == reason for status in statuses)

    pod = await until(admin, POD, namespace, "p", blocked)
    assert pod.status.phase == "Pending"
    await admin.delete(POD, "p", namespace=namespace)
    await until(admin, POD, namespace, "p", gone)


@pytest.mark.parametrize(("code", "last"), [(143, "Failed"), (0, "Succeeded")])
async def test_a_deleted_pod_is_stopped_reported_and_removed(
    kubelet: ScriptedKubelet,
    admin: Client,
    namespace: str,
    play: Callable[[Play], None],
    code: int,
    last: str,
) -> None:
    play(Play(run_s=None, stop_exit_code=code))
    await admin.create(POD, pod_body(namespace))
    pod = await until(admin, POD, namespace, "p", phase("Running"))
    await admin.delete(POD, "p", namespace=namespace, uid=pod.metadata.uid)
    seen: list[str] = []

    def note(pod: Pod | None) -> bool:
        if pod is not None:
            seen.append(pod.status.phase)
        return pod is None

    await until(admin, POD, namespace, "p", note)
    assert set(seen) <= {"Running", last}


async def test_an_evicted_pod_is_a_disruption_to_the_job_controller(
    kubelet: ScriptedKubelet, admin: Client, namespace: str, play: Callable[[Play], None]
) -> None:
    play(Play(evicted="low on memory"))
    await admin.create(POD, pod_body(namespace))
    pod = await until(admin, POD, namespace, "p", phase("Failed"))
    assert (pod.status.reason, pod.status.message) == ("Evicted", "low on memory")
    assert is_true(pod.status.conditions, "DisruptionTarget")


async def test_a_running_pod_ends_on_demand(
    kubelet: ScriptedKubelet, admin: Client, namespace: str, play: Callable[[Play], None]
) -> None:
    play(Play(run_s=None))
    await admin.create(POD, pod_body(namespace))
    await until(admin, POD, namespace, "p", phase("Running"))
    kubelet.end(namespace, "p", exit_code=7)
    await until(admin, POD, namespace, "p", phase("Failed"))


async def test_a_pod_that_takes_its_time_ends_on_demand(
    kubelet: ScriptedKubelet, admin: Client, namespace: str, play: Callable[[Play], None]
) -> None:
    """After it was told to stop."""
    play(Play(run_s=None, stop_s=3600))
    await admin.create(POD, pod_body(namespace, terminationGracePeriodSeconds=3600))
    await until(admin, POD, namespace, "p", phase("Running"))
    await admin.delete(POD, "p", namespace=namespace)
    kubelet.end(namespace, "p", exit_code=143)
    assert await until(admin, POD, namespace, "p", gone) is None


async def test_what_a_trainer_printed_can_be_read(
    kubelet: ScriptedKubelet, admin: Client, namespace: str, play: Callable[[Play], None]
) -> None:
    play(Play(log="epoch 1\nepoch 2\n"))
    await admin.create(POD, pod_body(namespace))
    await until(admin, POD, namespace, "p", phase("Succeeded"))
    assert await admin.pod_log("p", namespace) == "epoch 1\nepoch 2\n"


async def test_claims_are_bound_and_their_volumes_go_with_them(
    kubelet: ScriptedKubelet, admin: Client, namespace: str
) -> None:
    await admin.create(CLAIM, claim_body(namespace, "data"))

    def bound(claim: Claim | None) -> bool:
        return claim is not None and claim.status.phase == "Bound"

    claim = await until(admin, CLAIM, namespace, "data", bound)
    assert claim.spec.storage_class_name == "standard"
    await admin.delete(CLAIM, "data", namespace=namespace)

    def vanished(volume: Volume | None) -> bool:
        return volume is None

    await until(admin, VOLUME, "", claim.spec.volume_name, vanished)


async def test_claim_that_waits_for_its_consumer_is_bound(
    kubelet: ScriptedKubelet, admin: Client, namespace: str
) -> None:
    class_ = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": namespace},
        "provisioner": PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await admin.create(STORAGE_CLASS, class_)
    await admin.create(CLAIM, claim_body(namespace, "data", namespace))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await admin.create(POD, pod_body(namespace, volumes=volumes))
    await until(admin, POD, namespace, "p", phase("Succeeded"))
    assert (await admin.get(CLAIM, "data", namespace)).status.phase == "Bound"
    await admin.delete(STORAGE_CLASS, namespace)


async def test_pods_on_a_lost_node_wait_for_its_return(
    kubelet: ScriptedKubelet, admin: Client, namespace: str, play: Callable[[Play], None]
) -> None:
    play(Play(run_s=None))
    await admin.create(POD, pod_body(namespace))
    pod = await until(admin, POD, namespace, "p", phase("Running"))
    node = pod.spec.node_name
    await kubelet.lose(node)
    try:
        await until(admin, NODE, "", node, lambda obj: any("unreachable" in t["key"] for t in obj.spec.taints))
        await admin.delete(POD, "p", namespace=namespace)
        stuck = await admin.get(POD, "p", namespace)
        assert (stuck.status.phase, stuck.metadata.deletion_timestamp is not None) == ("Running", True)
    finally:
        await kubelet.restore(node)
    await until(admin, POD, namespace, "p", gone)
    await until(admin, NODE, "", node, lambda obj: not obj.spec.taints)


async def test_node_taken_for_lost_reports_ready_again(kubelet: ScriptedKubelet, admin: Client) -> None:
    """What the node lifecycle controller writes where it hears of no Lease, because it was cut off itself."""
    node = sorted(found.metadata.name for found in await admin.list(NODE))[0]
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "no word of it"}
    await admin.merge_patch(NODE, node, {"status": {"conditions": [unknown]}}, subresource="status")
    await until(admin, NODE, "", node, lambda obj: bool(obj.spec.taints))
    await until(admin, NODE, "", node, lambda obj: not obj.spec.taints)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pod_groups(admin: Client) -> AsyncGenerator[None]:
    """PodGroups as a kind; a definition that is there already is used and left."""
    name = f"{POD_GROUP.plural}.{POD_GROUP.group}"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": POD_GROUP.group,
            "names": {"kind": POD_GROUP.kind, "plural": POD_GROUP.plural, "singular": "podgroup"},
            "scope": "Namespaced",
            "versions": [
                {"name": POD_GROUP.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }
    try:
        await admin.create(CRD, body)
    except AlreadyExists:
        yield
        return
    await until(
        admin,
        CRD,
        "",
        name,
        lambda obj: any(c["type"] == "Established" and c["status"] == "True" for c in obj.status.get("conditions", ())),
    )
    yield
    await admin.delete(CRD, name)


async def test_a_gang_is_bound_together_once_all_of_it_exists(
    kubelet: ScriptedKubelet, admin: Client, namespace: str, pod_groups: None, play: Callable[[Play], None]
) -> None:
    play(Play(run_s=None))
    group = {
        "apiVersion": POD_GROUP.api_version,
        "kind": POD_GROUP.kind,
        "metadata": {"name": "gang", "namespace": namespace},
        "spec": {"minMember": 2},
    }
    await admin.create(POD_GROUP, group)

    def member(name: str) -> dict[str, Any]:
        body = pod_body(namespace, name, schedulerName="kai-scheduler")
        body["metadata"]["annotations"] = {"pod-group-name": "gang"}
        return body

    first = await admin.create(POD, member("one"))
    # A pod that needs no gang is bound after it was seen: so the first of the gang was seen and waits.
    await admin.create(POD, pod_body(namespace, "alone", schedulerName="kai-scheduler"))
    await until(admin, POD, namespace, "alone", phase("Running"))
    assert (await admin.get(POD, "one", namespace)).spec.node_name == first.spec.node_name == ""
    await admin.create(POD, member("two"))
    for name in ("one", "two"):
        pod = await until(admin, POD, namespace, name, phase("Running"))
        assert find(pod.status.conditions, "PodScheduled") is not None


async def test_many_jobs_run_at_once(kubelet: ScriptedKubelet, admin: Client, namespace: str) -> None:
    async with anyio.create_task_group() as tasks:
        for index in range(30):
            tasks.start_soon(admin.create, JOB, job_body(namespace, f"j-{index}", pods=1))
    for index in range(30):
        job = await until(admin, JOB, namespace, f"j-{index}", ended)
        assert is_true(job.status.conditions, "Complete")
