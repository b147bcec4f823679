"""Jobs that wait for other jobs: what they say meanwhile, what exists of them, and what becomes of them."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place, a_job
from operators import background_operator, running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONTROLLER_REVISION, JOB, POD, PVC, SERVICE
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import Invalid
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Kind
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.faults import Moment, is_write
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.proxy import FaultProxy

CHILDREN: tuple[Kind[Any], ...] = (CONTROLLER_REVISION, PVC, POD, SERVICE, JOB)
NEVER = {"runPolicy": {"restartPolicy": "Never"}}


def of(namespace: str, begins: str) -> Callable[[Pod], bool]:
    """Pods of the jobs there whose name begins so."""
    return lambda pod: (
        pod.metadata.namespace == namespace and pod.metadata.labels.get("torchrun.ai/job-name", "").startswith(begins)
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    """Jobs of one node; those named `long-` run until they are told to end, those named `bad-` fail."""
    here = fresh_name("depends-on")
    before = kubelet.script
    kubelet.script = before.when(of(here, "long-"), Play(run_s=None)).when(of(here, "bad-"), Play(exit_code=3))
    await create_namespace(admin, here)
    place = Place(admin, here)
    await place.queue()
    async with background_operator(operator_account, here):
        yield place
    kubelet.script = before
    await clear(admin, here)


async def submit(place: Place, name: str, *waits: str, **spec: Any) -> None:
    """Creates a job of one node; `other!` is a job that has to run, `other` one that has to succeed."""
    wanted = [{"job": one.rstrip("!"), **({"condition": "Running"} if one.endswith("!") else {})} for one in waits]
    await place.job(name, numNodes=1, **({"dependsOn": wanted} if wanted else {}), **spec)


async def end(place: Place, kubelet: ScriptedKubelet, job: str) -> None:
    (pod,) = await place.admin.list(POD, namespace=place.namespace, labels=f"torchrun-job-name={job}")
    kubelet.end(place.namespace, pod.metadata.name)


async def children(place: Place, job: str) -> list[str]:
    labels = f"torchrun.ai/job-name={job}"
    return [
        f"{kind.kind} {child.metadata.name}"
        for kind in CHILDREN
        for child in await place.admin.list(kind, namespace=place.namespace, labels=labels)
    ]


@pytest.mark.proves("TorchrunJob.spec.dependsOn[].job")
async def test_waiting_job_has_no_children_and_starts_by_itself(place: Place, kubelet: ScriptedKubelet) -> None:
    await submit(place, "long-prep")
    await submit(place, "train", "long-prep", volumes={"workspace": {"source": "git", "url": "https://g.example/a"}})
    await submit(place, "report", "train")
    await place.reaches(Phase.RUNNING, "long-prep")
    for name, other in (("train", "long-prep"), ("report", "train")):
        found = await place.condition("DependenciesMet", "WaitingForDependency", name)
        assert found.message == f"waits for TorchrunJob {other} to succeed; this job goes on by itself then"
        assert (await place.reaches(Phase.PENDING, name)).status.start_time is None
        assert await children(place, name) == []
    await end(place, kubelet, "long-prep")
    report = await place.reaches(Phase.SUCCEEDED, "report")
    train = await place.reaches(Phase.SUCCEEDED, "train")
    prep = await place.reaches(Phase.SUCCEEDED, "long-prep")
    assert prep.status.completion_time is not None
    assert train.status.start_time is not None
    assert train.status.completion_time is not None
    assert report.status.start_time is not None
    assert prep.status.completion_time <= train.status.start_time
    assert train.status.completion_time <= report.status.start_time
    assert [event.reason for event in await place.events("train")].count("DependenciesMet") == 1


@pytest.mark.proves("TorchrunJob.spec.dependsOn[].condition")
async def test_dependency_on_running_is_met_before_the_end(place: Place) -> None:
    await submit(place, "long-server")
    await submit(place, "client", "long-server!")
    await place.reaches(Phase.SUCCEEDED, "client")
    await place.reaches(Phase.RUNNING, "long-server")


async def test_missing_dependency_is_named_until_it_is_created(place: Place) -> None:
    await submit(place, "early", "late")
    found = await place.condition("DependenciesMet", "DependencyNotFound", "early")
    assert "TorchrunJob late does not exist: create it" in found.message
    told = await until(lambda: place.events("early"))  # they follow the status
    assert [(it.type, it.reason) for it in told] == [("Warning", "DependencyNotFound")]
    await submit(place, "late")
    await place.reaches(Phase.SUCCEEDED, "early")


async def test_job_that_others_wait_for_outlives_its_ttl(place: Place) -> None:
    await submit(place, "both", "brief", "belated")
    await submit(place, "brief", runPolicy={"ttlSecondsAfterFinished": 0})
    await place.reaches(Phase.SUCCEEDED, "brief")
    await submit(place, "belated")
    await place.reaches(Phase.SUCCEEDED, "both")
    await place.gone(TORCHRUN_JOB, "brief")


async def test_failure_reaches_all_dependents_and_names_the_failed_job(place: Place) -> None:
    await submit(place, "second", "first")
    await submit(place, "first", "bad-origin")
    await submit(place, "beside", "bad-origin!", "never-there")
    await submit(place, "bad-origin", **NEVER)
    for name, other in (("first", "bad-origin"), ("second", "first"), ("beside", "bad-origin")):
        job = await place.reaches(Phase.FAILED, name)
        failed = find(job.status.conditions, "Failed")
        assert failed is not None
        assert failed.reason == "DependencyFailed"
        assert f"TorchrunJob {other} has failed" in failed.message
        assert job.status.start_time is None
        assert await children(place, name) == []


async def test_cycle_is_named_by_all_its_jobs(place: Place) -> None:
    """The cycle ends when one of its jobs is deleted and submitted again."""
    ring = {"one": "two", "two": "three", "three": "one"}
    for name, other in ring.items():
        await submit(place, name, other)
    await submit(place, "behind", "two")
    for name in ring:
        found = await place.condition("DependenciesMet", "DependencyCycle", name)
        assert f", {name} -> {ring[name]} -> {ring[ring[name]]} -> {name}: none of them can start" in found.message
    found = await place.condition("DependenciesMet", "DependencyCycle", "behind")
    assert ", one -> two -> three -> one: " in found.message
    await place.admin.delete(TORCHRUN_JOB, "three", namespace=place.namespace)
    await place.condition("DependenciesMet", "DependencyNotFound", "two")
    await place.condition("DependenciesMet", "WaitingForDependency", "one")
    await submit(place, "three")
    for name in (*ring, "behind"):
        await place.reaches(Phase.SUCCEEDED, name)


async def test_job_that_has_begun_ignores_its_dependencies(place: Place, kubelet: ScriptedKubelet) -> None:
    await submit(place, "short")
    await submit(place, "long-after", "short")
    await place.reaches(Phase.RUNNING, "long-after")
    await place.admin.delete(TORCHRUN_JOB, "short", namespace=place.namespace)
    await place.gone(TORCHRUN_JOB, "short")
    await place.touch("long-after")
    await end(place, kubelet, "long-after")
    job = await place.reaches(Phase.SUCCEEDED, "long-after")
    met = find(job.status.conditions, "DependenciesMet")
    assert met is not None
    assert (met.status, met.message) == ("True", "TorchrunJob short has succeeded")


async def test_a_job_cannot_name_itself(place: Place) -> None:
    body = a_job(place.namespace, "itself", dependsOn=[{"job": "itself"}])
    with pytest.raises(Invalid, match="must not name the job itself"):
        await place.admin.create(TORCHRUN_JOB, body, place.namespace)


async def test_what_ended_while_the_operator_was_down_is_not_missed(
    operator_account: Connection, admin: Client, namespace: str, kubelet: ScriptedKubelet
) -> None:
    place, before = Place(admin, namespace), kubelet.script
    kubelet.script = before.when(of(namespace, "long-"), Play(run_s=None))
    await place.queue()
    await submit(place, "long-prep")
    await submit(place, "train", "long-prep")
    async with running_operator(operator_account, namespace):
        await place.reaches(Phase.RUNNING, "long-prep")
        await place.condition("DependenciesMet", "WaitingForDependency", "train")
    await end(place, kubelet, "long-prep")
    async with running_operator(operator_account, namespace):
        await place.reaches(Phase.SUCCEEDED, "train")
    kubelet.script = before


@pytest.mark.parametrize("moment", Moment)
async def test_operator_killed_at_met_dependencies_leaves_nothing_half_begun(
    control_plane: ControlPlane, operator_account: Connection, admin: Client, namespace: str, moment: Moment
) -> None:
    """Nothing is begun that a later operator would not go on with, although the job that was waited for is gone."""
    place = Place(admin, namespace)
    await place.queue()
    await submit(place, "prep")
    async with running_operator(operator_account, namespace):
        await place.reaches(Phase.SUCCEEDED, "prep")
    async with FaultProxy(control_plane.connection()) as proxy:
        async with running_operator(proxy.connection(operator_account), namespace) as operator:

            async def kill() -> None:
                operator.kill()

            cut = proxy.cut(1, moment, match=lambda it: is_write(it) and it.path.endswith("/train/status"), then=kill)
            await submit(place, "train", "prep")
            await place.reaches(Phase.SUCCEEDED, "train")  # which the end of the operator interrupts
        assert cut.exchange is not None
    assert await children(place, "train") == []
    await admin.delete(TORCHRUN_JOB, "prep", namespace=namespace)
    await place.gone(TORCHRUN_JOB, "prep")
    async with running_operator(operator_account, namespace):
        if moment is Moment.BEFORE:
            await place.condition("DependenciesMet", "DependencyNotFound", "train")
            assert await children(place, "train") == []
            await submit(place, "prep")
        await place.reaches(Phase.SUCCEEDED, "train")
