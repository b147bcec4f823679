"""How the workers of a job ended while no operator ran: the next one finds out, and does what is right."""

import json
from collections.abc import AsyncGenerator

import pytest_asyncio
from clusters import clear
from jobs import Place
from operators import running_operator
from waiting import until

from torchctl.api.kube import JOB, POD, Pod
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name

KEPT = "example.com/kept"
"""A finalizer: what it is on can be read after its end."""


@pytest_asyncio.fixture(loop_scope="session")
async def place(admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    """A namespace whose workers run until they are told to end, or to stop: then they save and exit 0."""
    here = Place(admin, fresh_name("away"))
    before = kubelet.script
    kubelet.script = before.when(
        lambda pod: pod.metadata.namespace == here.namespace, Play(run_s=None, stop_exit_code=0)
    )
    await create_namespace(admin, here.namespace)
    await here.queue()
    yield here
    kubelet.script = before
    await clear(admin, here.namespace)


async def workers(place: Place) -> list[Pod]:
    return await place.admin.list(POD, namespace=place.namespace, labels="torchrun.ai/role=worker")


async def is_complete(place: Place) -> bool:
    """Whether the Job controller counts every worker as a success."""
    job = await place.admin.get(JOB, "job", place.namespace)
    return any(it.type == "Complete" and it.status == "True" for it in job.status.conditions or ())


async def test_workers_that_succeeded_meanwhile_are_one_success(
    place: Place, kubelet: ScriptedKubelet, operator_account: Connection
) -> None:
    await place.job()
    async with running_operator(operator_account, place.namespace):
        await place.reaches(Phase.RUNNING)
    for pod in await workers(place):
        kubelet.end(place.namespace, pod.metadata.name)
    await until(lambda: is_complete(place))
    async with running_operator(operator_account, place.namespace):
        job = await place.reaches(Phase.SUCCEEDED)
        await until(lambda: has_told(place))
    assert (job.status.attempt, job.status.restarts.total) == (0, 0)
    async with running_operator(operator_account, place.namespace):
        await place.job("later")
        await place.reaches(Phase.RUNNING, "later")
    after = await place.reaches(Phase.SUCCEEDED)
    assert after.status == job.status
    assert [event.count for event in await place.events() if event.reason == "Succeeded"] == [1]
    assert not await place.exists(JOB, "job-r1")


async def test_evicted_trainers_that_exit_0_have_not_succeeded(
    place: Place, control_plane: ControlPlane, operator_account: Connection
) -> None:
    """The Job controller says Complete; the pods are still there and tell that they were told to stop."""
    await place.job()
    async with running_operator(operator_account, place.namespace):
        await place.reaches(Phase.RUNNING)
    evicted = await workers(place)
    for pod in evicted:
        await keep(place, pod, KEPT)
        await evict(control_plane, pod)
    await until(lambda: is_complete(place))
    async with running_operator(operator_account, place.namespace):
        job = await place.in_attempt(1)
    assert job.status.restarts.by_cause == {"Evicted": 1}
    for pod in evicted:
        await keep(place, pod)


async def has_told(place: Place) -> bool:
    return any(event.reason == "Succeeded" for event in await place.events())


async def keep(place: Place, pod: Pod, *finalizers: str) -> None:
    """Puts these finalizers beside those of others, in place of the one that was put there before."""
    meta = (await place.admin.get(POD, pod.metadata.name, place.namespace)).metadata
    others = [finalizer for finalizer in meta.finalizers if finalizer != KEPT]
    body = {"metadata": {"finalizers": [*others, *finalizers], "resourceVersion": meta.resource_version}}
    await place.admin.merge_patch(POD, meta.name, body, namespace=place.namespace)


async def evict(control_plane: ControlPlane, pod: Pod) -> None:
    """As `kubectl drain` does."""
    meta = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    await control_plane.kubectl("create", "--raw", path, "-f-", input=json.dumps(body))
