"""Acts of a person who plays Kueue, or Volcano: what these write of the job that they see, and no more."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import playedkueue
from playedkueue import SEEN_S, condition
from users import User
from waiting import until

from torchctl.api import names
from torchctl.api.conditions import JobCondition
from torchctl.api.job import JobStatus
from torchctl.api.kube import JOB, POD, Job, Pod
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.volcano import VOLCANO_PODGROUP, VOLCANO_QUEUE, VolcanoPodGroup
from torchctl.controllers.job import pods
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Kind, Object
from torchctl.testing.nodekinds import BINDING

__all__ = ["admits", "evicts", "heeds_pause", "lets_go", "open_volcano_queue", "places", "preempts", "said", "waits"]

Do = Callable[[User, str], Awaitable[None]]
Json = dict[str, Any]

T = TypeVar("T", bound=Object)

STOPPED = 143


def said(words: str) -> Callable[[JobStatus], bool]:
    """The condition `Admitted` has these words."""

    def there(status: JobStatus) -> bool:
        found = find(status.conditions, JobCondition.ADMITTED)
        return found is not None and words in found.message

    return there


# Kueue.


def admits() -> Do:
    """Takes up the attempt's Job if that is new, waits until it may run, and gives it quota."""

    async def let_in(user: User, name: str) -> None:
        job = await _worker_job(user, name)
        await playedkueue.take_up(user.admin, job)
        await until(lambda: playedkueue.is_active(user.admin, job), timeout_s=SEEN_S)
        await playedkueue.admit(user.admin, job)

    return let_in


def evicts() -> Do:
    """Takes the quota back, which another job needs."""

    async def evict(user: User, name: str) -> None:
        job = await _worker_job(user, name)
        await playedkueue.evict(user.admin, job, "Preempted", "Preempted to accommodate a workload")

    return evict


def heeds_pause() -> Do:
    """Sees that the Workload was made inactive, and stops its Job."""

    async def heed(user: User, name: str) -> None:
        job = await _worker_job(user, name)

        async def is_paused() -> bool:
            return not await playedkueue.is_active(user.admin, job)

        await until(is_paused, timeout_s=SEEN_S)
        await playedkueue.evict(user.admin, job, "Deactivated", "The workload is deactivated")

    return heed


async def _worker_job(user: User, name: str) -> Job:
    """The Job of the attempt that status names, once it is there."""
    seen = user.job(name)
    assert seen is not None
    child = names.worker_job(name, seen.status.attempt)
    found = await until(lambda: _found(user, JOB, child), timeout_s=SEEN_S)
    assert found is not None
    return found


async def _found(user: User, kind: Kind[T], name: str) -> T | None:
    with suppress(NotFound):
        return await user.admin.get(kind, name, user.namespace)
    return None


# Volcano.


async def open_volcano_queue(admin: Client, name: str) -> None:
    """Makes one of Volcano's Queues, which takes in pods."""
    body = {"apiVersion": VOLCANO_QUEUE.api_version, "kind": VOLCANO_QUEUE.kind, "metadata": {"name": name}}
    await admin.create(VOLCANO_QUEUE, body | {"spec": {"weight": 1}})
    await admin.merge_patch(VOLCANO_QUEUE, name, {"status": {"state": "Open"}}, subresource="status")


def waits(words: str) -> Do:
    """Says why no pod of the attempt's PodGroup is placed."""

    async def wait(user: User, name: str) -> None:
        await _group_is(user, name, "Inqueue", condition("Unschedulable", "True", "NotEnoughResources", words))

    return wait


def places(count: int) -> Do:
    """Gives each of so many pods of the attempt a node, once all are there."""

    async def place(user: User, name: str) -> None:
        async def there() -> list[Pod]:
            found = [pod for pod in await _workers(user, name) if not pod.spec.node_name]
            return found if len(found) == count else []

        for number, pod in enumerate(await until(there, timeout_s=SEEN_S)):
            body = _header(BINDING, pod.metadata.name, user, pod.metadata.uid)
            node = {"apiVersion": "v1", "kind": "Node", "name": f"node-{number}"}
            await user.admin.create(BINDING, body | {"target": node}, name=pod.metadata.name, subresource="binding")
        await _group_is(user, name, "Running", condition("Scheduled", "True", "tasks in gang are ready", ""))

    return place


def preempts(index: int) -> Do:
    """Evicts one worker for a gang of higher priority, as Volcano does also where that breaks a gang."""

    async def preempt(user: User, name: str) -> None:
        (pod,) = [one for one in await _workers(user, name) if pods.index(one) == index]
        words = "volcano: preempting to accommodate a higher priority pod"
        target = condition("DisruptionTarget", "True", "PreemptionByScheduler", words)
        body = _header(POD, pod.metadata.name, user, pod.metadata.uid) | {"status": {"conditions": [target]}}
        await user.admin.apply(POD, body, subresource="status", force=True, field_manager="volcano")
        await _group_is(user, name, "Unknown", condition("Unschedulable", "True", "NotEnoughResources", "1 Pending"))
        await user.admin.delete(POD, pod.metadata.name, namespace=user.namespace)

    return preempt


async def _group_is(user: User, name: str, phase: str, condition: Json) -> None:
    """Writes the status of the attempt's PodGroup, once that is there."""
    job = user.job(name)
    assert job is not None
    group = names.pod_group(names.worker_job(name, job.status.attempt), job.metadata.uid)
    found: VolcanoPodGroup | None = await until(lambda: _found(user, VOLCANO_PODGROUP, group), timeout_s=SEEN_S)
    assert found is not None
    body = _header(VOLCANO_PODGROUP, group, user, found.metadata.uid)
    status = {"phase": phase, "conditions": [condition]}
    await user.admin.apply(VOLCANO_PODGROUP, body | {"status": status}, force=True, field_manager="volcano")


# Both.


def lets_go(count: int) -> Do:
    """So many workers that were told to stop, and take their time, come to their end, once all of them were told."""

    async def let_go(user: User, name: str) -> None:
        async def leaving() -> list[Pod]:
            every = await user.admin.list(POD, namespace=user.namespace, labels=_labels(name))
            found = [pod for pod in every if pod.metadata.deletion_timestamp and not pods.has_ended(pod)]
            return found if len(found) == count else []

        for pod in await until(leaving, timeout_s=SEEN_S):
            user.kubelet.end(user.namespace, pod.metadata.name, STOPPED)

    return let_go


async def _workers(user: User, name: str) -> list[Pod]:
    """The workers of the attempt that status names."""
    job = user.job(name)
    assert job is not None
    chosen = f"{_labels(name)},{ATTEMPT}={job.status.attempt}"
    return sorted(
        await user.admin.list(POD, namespace=user.namespace, labels=chosen), key=lambda pod: pod.metadata.name
    )


def _labels(name: str) -> str:
    return f"{JOB_NAME}={name},{ROLE}={ROLE_WORKER}"


def _header(kind: Kind[Any], name: str, user: User, uid: str = "") -> Json:
    known = {"uid": uid} if uid else {}
    meta = {"name": name, "namespace": user.namespace} | known
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
