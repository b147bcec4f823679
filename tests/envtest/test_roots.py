"""What the real Job controller does to the other workers when one is lost, and what the operator makes of it."""

import functools
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place
from operators import RunningOperator, operator_settings, running_operator

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD, Pod
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod as PlayedPod

pytestmark = pytest.mark.usefixtures("own_script")

REPORTS = Path(__file__).parents[1] / "unit" / "controllers" / "job" / "reports"
PEER_LOST = (REPORTS / "worker-1-lost" / "worker-0.exit-1.txt").read_text()
FOR_EVER = Play(run_s=None)
Works = Callable[[], AbstractAsyncContextManager[RunningOperator]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(admin: Client) -> AsyncGenerator[Place]:
    namespace = fresh_name("roots")
    await create_namespace(admin, namespace)
    here = Place(admin, namespace)
    await here.queue()
    yield here
    await clear(admin, namespace)


@pytest.fixture
def works(operator_account: Connection, place: Place) -> Works:
    """An operator that waits until the Job controller has done what it does."""
    quick = operator_settings(place.namespace)
    restarting = replace(quick.operator.restarting, settle_s=4.0)
    patient = replace(quick, operator=replace(quick.operator, restarting=restarting))
    return lambda: running_operator(operator_account, place.namespace, patient)


@pytest.fixture
def plays(kubelet: ScriptedKubelet) -> Callable[..., None]:
    """Writes what happens to the workers of a first attempt into the script."""

    def is_it(pod: PlayedPod, job: str, index: int | None) -> bool:
        labels = pod.metadata.labels
        ours = labels.get(JOB_NAME) == job and labels.get(ROLE) == ROLE_WORKER and labels.get(ATTEMPT) == "0"
        return ours and index in (None, int(labels["batch.kubernetes.io/job-completion-index"]))

    def play(what: Play, job: str, index: int | None = None) -> None:
        kubelet.script = kubelet.script.when(functools.partial(is_it, job=job, index=index), what)

    return play


async def workers(place: Place, job: str) -> list[Pod]:
    """By index."""
    found = await place.admin.list(POD, namespace=place.namespace, labels=f"{JOB_NAME}={job},{ROLE}={ROLE_WORKER}")
    return sorted(found, key=lambda pod: pod.metadata.name)


async def test_workers_stopped_by_the_job_controller_are_not_the_cause(
    place: Place, works: Works, kubelet: ScriptedKubelet, plays: Callable[..., None], control_plane: ControlPlane
) -> None:
    """In the same second, too: what was seen to fail before it stopped the others is the cause."""
    async with works():
        plays(FOR_EVER, "echo")
        plays(replace(FOR_EVER, messages={"trainer": PEER_LOST}), "echo", 0)
        await place.job("echo", numNodes=3)
        await place.in_attempt(0, "echo")
        first = (await workers(place, "echo"))[0].metadata.name
        control_plane.pause("kube-controller-manager")
        try:
            kubelet.end(place.namespace, first, exit_code=1)
            await place.condition(JobCondition.WORKERS_READY, JobReason.INCIDENT, "echo")
        finally:
            control_plane.resume("kube-controller-manager")
        job = await place.in_attempt(1, "echo")
        assert job.status.restarts.by_cause == {"PeerLost": 1}
        assert job.status.failure is not None
        assert job.status.failure.pod == first
        await place.admin.delete(TORCHRUN_JOB, "echo", namespace=place.namespace)


async def test_stopped_worker_0_that_exits_0_has_not_succeeded(
    place: Place, works: Works, plays: Callable[..., None]
) -> None:
    """The rule also holds if the rendezvous store is etcd, and not in worker 0."""
    async with works():
        plays(replace(FOR_EVER, stop_exit_code=0, stop_s=0.5), "kept")
        etcd = {"rdzvBackend": "etcd-v2"}
        await place.job("kept", numNodes=2, elastic={"minNodes": 1, "maxNodes": 2}, distributed=etcd)
        await place.in_attempt(0, "kept")
        first = (await workers(place, "kept"))[0].metadata.name
        await place.admin.delete(POD, first, namespace=place.namespace)
        job = await place.in_attempt(1, "kept")
        assert job.status.restarts.by_cause == {"Deleted": 1}
        await place.admin.delete(TORCHRUN_JOB, "kept", namespace=place.namespace)


async def test_job_suspended_as_its_workers_succeed_has_succeeded(
    place: Place, works: Works, kubelet: ScriptedKubelet, plays: Callable[..., None]
) -> None:
    """Whether the operator sees their ends before or after spec.suspend, and before or after it has told the Job."""
    async with works():
        plays(FOR_EVER, "done")
        await place.job("done", numNodes=2)
        await place.in_attempt(0, "done")
        for worker in await workers(place, "done"):
            kubelet.end(place.namespace, worker.metadata.name)
        patch = {"spec": {"suspend": True}}
        await place.admin.merge_patch(TORCHRUN_JOB, "done", patch, namespace=place.namespace)
        job = await place.reaches(Phase.SUCCEEDED, "done")
        assert (job.status.attempt, job.status.restarts.total) == (0, 0)
