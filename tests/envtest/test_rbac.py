"""The operator needs every right that it has, and no other: `operator_account` judges the requests of all tests."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from clusters import OPERATOR_NAMESPACE, install_kueue, quota_noted
from jobs import Place, a_kai_queue
from operators import operator_settings, running_operator
from rights import ALPHA, IN_ADMISSION, asked, granted, used
from stories import STORIES
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONFIG_MAP, CONTROLLER_REVISION, JOB, KAI_PODGROUP, KAI_QUEUE, POD, PVC, SERVICE, Pod
from torchctl.api.kueue import KUEUE_WORKLOAD
from torchctl.api.labels import ATTEMPT, JOB_NAME
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.api.volcano import VOLCANO_PODGROUP, VOLCANO_QUEUE
from torchctl.controllers.job.steps import workers
from torchctl.runtime.access.core import Access
from torchctl.runtime.access.readers import Readers
from torchctl.runtime.apply import Applier, ForeignObject
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.kinds import LEASE, Kind, ObjectMeta
from torchctl.runtime.server import METRICS
from torchctl.runtime.settings import ElectionSettings
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.proxy import FaultProxy
from torchctl.testing.script import labelled


async def test_every_right_is_used_and_no_request_is_denied(
    control_plane: ControlPlane,
    admin: Client,
    namespace: str,
    operator_account: Connection,
    kubelet: ScriptedKubelet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = labelled(**{JOB_NAME: "short", ATTEMPT: "0"})
    monkeypatch.setattr(kubelet, "script", kubelet.script.when(first, Play(run_s=None)))
    monkeypatch.setattr(workers, "OVERDUE", timedelta(milliseconds=20))  # it asks the Events for missing pods
    await install_kueue(control_plane)
    log = control_plane.audit_log
    start = log.stat().st_size
    settings = operator_settings(namespace)
    runtime = replace(settings.runtime, election=ElectionSettings(lease_namespace=OPERATOR_NAMESPACE))
    with suppress(NotFound):
        await admin.delete(LEASE, "torchctl", namespace=OPERATOR_NAMESPACE)
    async with FaultProxy(control_plane.connection()) as proxy:
        # Without streaming lists, as an API server before 1.34 has it, it lists.
        proxy.answer(422, match=lambda exchange: "sendInitialEvents" in exchange.query, times=None, reason="Invalid")
        connection = proxy.connection(operator_account)
        async with running_operator(connection, namespace, replace(settings, runtime=runtime)) as operator:
            place = Place(admin, namespace)
            await _be_scraped(operator.manager.client, await operator_account.authorization() or "")
            await _use_all(place)
            await _meet_what_others_made(place, operator.manager.applier)
            await _be_refused(place, control_plane)

    requests = asked(log, start)
    # An API server that other tests restart denies until its authorizer is in sync.
    assert [request for request in requests if request.was_denied] == []
    assert granted() - used(requests) - IN_ADMISSION - ALPHA == set()


async def _be_scraped(client: Client, token: str) -> None:
    """By somebody whom the API server knows, and who has no right to the metrics: the operator itself."""
    assert await Readers(client, SystemClock(), METRICS).access(token) is Access.FORBIDDEN


async def _use_all(place: Place) -> None:
    """Everything that an operator does for its users."""
    await _live_through(place, "gang")
    await place.gone(KAI_QUEUE, place.namespace)
    await _live_through(place, "served")
    await place.gone(POD, "served-sync-0")
    await _stock(place)
    await _outlive(place)
    await _be_placed_by_volcano(place)
    await _be_paused_in_kueue(place)
    await place.job("held", suspend=True)
    for _ in range(2):  # the same Event twice is one that is counted up
        await place.condition("QueueFound", "QueueNotFound", "held")
        await place.queue()
        await place.condition("QueueFound", "QueueFound", "held")
        await place.admin.delete(TORCHRUN_QUEUE, "queue", namespace=place.namespace)

    async def was_counted_up() -> bool:
        return any(event.count > 1 for event in await place.events("held"))

    await until(was_counted_up)


async def _stock(place: Place) -> None:
    """A queue with an object of its own, until it is asked for no more."""
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    await place.queue("stocked", resources=[{"name": "settings", "template": settings}])
    await place.condition("ResourcesReady", "ResourcesReady", "stocked", kind=TORCHRUN_QUEUE)
    nothing: dict[str, Any] = {"spec": {"resources": []}}
    await place.admin.merge_patch(TORCHRUN_QUEUE, "stocked", nothing, namespace=place.namespace)
    await place.gone(CONFIG_MAP, "settings")


async def _outlive(place: Place) -> None:
    """A gang of two attempts, each with a template of its own, of which nothing stays in the end."""
    await place.queue("short", kaiQueue=place.namespace)
    policy = {"ttlSecondsAfterFinished": 1, "podRetention": "None"}
    await place.job("short", jobQueue="short", queueUpdatePolicy="NextAttempt", runPolicy=policy)
    pod = await until(lambda: _a_worker(place, "short"))
    assert pod is not None
    other: dict[str, Any] = {"spec": {"image": "trainer:2"}}
    await place.admin.merge_patch(TORCHRUN_QUEUE, "short", other, namespace=place.namespace)
    await place.admin.delete(POD, pod.metadata.name, namespace=place.namespace)
    await place.gone(TORCHRUN_JOB, "short", timeout_s=60.0)
    await place.admin.delete(TORCHRUN_QUEUE, "short", namespace=place.namespace)


async def _be_placed_by_volcano(place: Place) -> None:
    """A gang of Volcano's in a Queue of the operator's: the PodGroup goes when the job has ended, the Queue last."""
    scheduling = {"volcanoQueue": place.namespace, "volcanoQueuePolicy": "Manage"}
    await place.queue("volcano", scheduling=scheduling)
    await place.job("volcano", jobQueue="volcano")
    await place.reaches(Phase.SUCCEEDED, "volcano")

    async def none_left() -> bool:
        return not await place.admin.list(VOLCANO_PODGROUP, namespace=place.namespace)

    await until(none_left)
    await place.admin.delete(TORCHRUN_QUEUE, "volcano", namespace=place.namespace)
    await place.gone(TORCHRUN_QUEUE, "volcano")
    await place.gone(VOLCANO_QUEUE, place.namespace)


async def _be_paused_in_kueue(place: Place) -> None:
    """A job that is suspended while Kueue has a Workload of its Job."""
    await place.queue("kueue", scheduling={"kueueQueue": "train"})
    await place.job("kueue", jobQueue="kueue")
    await until(partial(place.exists, JOB, "kueue"))
    job = await place.admin.get(JOB, "kueue", place.namespace)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "kueue", "uid": job.metadata.uid, "controller": True}
    container = {"name": "trainer", "image": "trainer:1"}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    workload = {
        "apiVersion": KUEUE_WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": {"name": "kueue", "namespace": place.namespace, "ownerReferences": [owner]},
        "spec": {"podSets": [pods], "queueName": "train"},
    }
    await place.admin.create(KUEUE_WORKLOAD, workload)
    await place.admin.merge_patch(TORCHRUN_JOB, "kueue", {"spec": {"suspend": True}}, namespace=place.namespace)

    async def is_paused() -> bool:
        return not (await place.admin.get(KUEUE_WORKLOAD, "kueue", place.namespace)).spec.active

    await until(is_paused)
    # From here on it waits, and its place in Kueue's queue is asked for: in vain, since nobody serves it.
    await place.admin.merge_patch(TORCHRUN_JOB, "kueue", {"spec": {"suspend": False}}, namespace=place.namespace)
    await place.admin.delete(TORCHRUN_QUEUE, "kueue", namespace=place.namespace)


async def _a_worker(place: Place, name: str) -> Pod | None:
    pods = await place.admin.list(POD, namespace=place.namespace, labels=f"{JOB_NAME}={name}")
    return pods[0] if pods else None


async def _be_refused(place: Place, control_plane: ControlPlane) -> None:
    """A quota that allows no pod: why a Job has none is only said in Events."""
    await control_plane.kubectl("create", "quota", "none", "--hard=pods=0", f"--namespace={place.namespace}")
    await quota_noted(control_plane, place.namespace, "none")
    await place.queue("empty")
    await place.job("empty", jobQueue="empty")

    async def is_told() -> bool:
        message = (await place.condition("WorkersReady", "PodsNotCreated", "empty")).message
        return "exceeded quota" in message or "status unknown for quota" in message

    await until(is_told)  # the first look may be earlier than the Event


async def _live_through(place: Place, name: str) -> None:
    """A story, and the deletion of its queue."""
    story = STORIES[name]
    await place.admin.create(TORCHRUN_QUEUE, story.queue(place.namespace))
    for job in story.jobs(place.namespace):
        await place.admin.create(TORCHRUN_JOB, job)
    await place.reaches(Phase.SUCCEEDED, name, timeout_s=60.0)
    await place.admin.delete(TORCHRUN_QUEUE, "queue", namespace=place.namespace)
    await place.gone(TORCHRUN_QUEUE, "queue")


_CONTAINER = {"name": "a", "image": "a:1"}
_OTHERS: dict[Kind[Any], dict[str, Any]] = {
    CONFIG_MAP: {},
    CONTROLLER_REVISION: {"data": {}, "revision": 1},
    JOB: {"spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}}}},
    KAI_PODGROUP: {"spec": {"minMember": 1}},
    KAI_QUEUE: a_kai_queue("others"),
    POD: {"spec": {"containers": [_CONTAINER]}},
    VOLCANO_PODGROUP: {"spec": {"minMember": 1}},
    PVC: {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    SERVICE: {"spec": {"clusterIP": "None"}},
}


async def _meet_what_others_made(place: Place, applier: Applier) -> None:
    """Objects that the cache does not know: the name is taken, so the operator reads whose they are."""
    name = place.namespace
    for kind, body in _OTHERS.items():
        namespace = place.namespace if kind.namespaced else ""
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
        await place.admin.create(kind, {**body, **typed, "metadata": meta})
        with pytest.raises(ForeignObject):
            # Not from the cache: by now its watch may have shown the object.
            await applier.apply_to(None, kind, {**typed, "metadata": meta}, _is_none)
        await place.admin.delete(kind, name, namespace=namespace)


def _is_none(_: ObjectMeta) -> bool:
    return False
