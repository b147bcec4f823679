"""The coordinator on a real control plane without a gang scheduler: whole gangs or none, queues in turn, quotas."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from clusters import WITHOUT_ENDPOINTS, clear, install
from jobs import Place
from operators import operator_settings, running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.jobstatus import Admission
from torchctl.api.kube import JOB, POD
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.cli.run import Operator
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet, default_nodes
from torchctl.testing.namespaces import create_namespace, fresh_name

CONFIG = Path(__file__).resolve().parents[2] / "config"
NODES = 8


def coordinated(**given: Any) -> Operator:
    """The operator's settings with the coordinator on, which says all that it knows at once."""
    settings = operator_settings()
    own = CoordinatorSettings(period_s=0.05, word_period_s=0.5, **given)
    return replace(settings, operator=replace(settings.operator, coordinator=own))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster() -> AsyncGenerator[tuple[Client, Connection, ScriptedKubelet]]:
    """A control plane of its own, with eight nodes of eight GPUs, and the rights of config/coordinator."""
    async with ControlPlane(options=WITHOUT_ENDPOINTS) as plane, plane.client() as admin:
        account = await install(plane)
        await plane.kubectl("apply", "-k", str(CONFIG / "coordinator"))
        async with ScriptedKubelet(admin, nodes=default_nodes(NODES)) as kubelet:
            yield admin, account, kubelet


@pytest_asyncio.fixture(loop_scope="session")
async def place(cluster: tuple[Client, Connection, ScriptedKubelet]) -> AsyncGenerator[Place]:
    """A namespace whose workers run until they are told to end."""
    admin, _, kubelet = cluster
    here, before = Place(admin, fresh_name("team")), kubelet.script
    await create_namespace(admin, here.namespace)
    kubelet.script = before.when(lambda pod: pod.metadata.namespace == here.namespace, Play(run_s=None))
    yield here
    kubelet.script = before
    await clear(admin, here.namespace)


async def job_of(place: Place, name: str) -> TorchrunJob:
    return await place.admin.get(TORCHRUN_JOB, name, place.namespace)


async def end(place: Place, kubelet: ScriptedKubelet, name: str) -> None:
    """Ends the workers of a job, which succeeds."""
    for pod in await place.admin.list(POD, namespace=place.namespace, labels=f"torchrun.ai/job-name={name}"):
        kubelet.end(place.namespace, pod.metadata.name)


@pytest.mark.proves(
    "TorchrunJob.status.admission.attempt",
    "TorchrunJob.status.admission.letInTime",
    "TorchrunJob.status.admission.clock",
    "TorchrunJob.status.admission.position",
    "TorchrunJob.status.admission.place",
    "TorchrunJob.status.admission.reason",
    "TorchrunJob.status.admission.message",
)
async def test_of_two_gangs_that_want_all_nodes_one_waits(
    cluster: tuple[Client, Connection, ScriptedKubelet], place: Place
) -> None:
    """Submitted together: with kube-scheduler alone each may hold half of the nodes for ever."""
    _, account, kubelet = cluster
    await place.queue(nodeResources={"gpus": 8})
    await place.job("one", numNodes=8)
    await place.job("two", numNodes=8)
    async with running_operator(account, settings=coordinated()):
        first = await until(lambda: _running(place, "one", "two"))
        second = "two" if first == "one" else "one"
        said = await told(place, second)
        assert (said.place, said.reason) == (1, "NodesShort")
        assert said.message == ("0 of 8 pods with 8 nvidia.com/gpu each find a node now, 8 short")
        place_1 = "place 1 of TorchrunQueue queue: 0 of 8 pods with 8 nvidia.com/gpu each find a node now, 8 short"

        async def is_told() -> bool:
            """The job's reconciler repeats the coordinator's words a moment later."""
            return (await place.condition("Admitted", "WaitingForAdmission", second)).message == place_1

        await until(is_told)
        assert not await place.exists(JOB, second)
        let_in = (await job_of(place, first)).status.admission
        assert let_in is not None
        assert (let_in.attempt, let_in.clock > 0, let_in.position > 0) == (0, True, True)
        await end(place, kubelet, first)
        await place.reaches(Phase.SUCCEEDED, first)
        await place.reaches(Phase.RUNNING, second)
        assert (await place.condition("Admitted", "LetIn", second)).status == "True"


async def test_the_next_operator_goes_on_from_what_is_recorded(
    cluster: tuple[Client, Connection, ScriptedKubelet], place: Place
) -> None:
    """It lets nobody in twice, and nobody beside the one that holds the nodes."""
    _, account, kubelet = cluster
    await place.queue(nodeResources={"gpus": 8})
    await place.job("one", numNodes=8)
    async with running_operator(account, settings=coordinated()):
        await place.reaches(Phase.RUNNING, "one")
    before = (await job_of(place, "one")).status.admission
    await place.job("two", numNodes=8)
    async with running_operator(account, settings=coordinated()):
        assert (await told(place, "two")).reason == "NodesShort"
        assert not await place.exists(JOB, "two")
        assert (await job_of(place, "one")).status.admission == before
        await end(place, kubelet, "one")
        await place.reaches(Phase.RUNNING, "two")


async def _running(place: Place, *names: str) -> str:
    """Returns the job that runs; empty if none does."""
    jobs = [await job_of(place, name) for name in names]
    return next((job.metadata.name for job in jobs if job.status.phase == Phase.RUNNING), "")


async def told(place: Place, name: str = "job") -> Admission:
    """What the coordinator says about a job that waits, once it has said something."""
    found: list[Admission] = []

    async def look() -> bool:
        record = (await job_of(place, name)).status.admission
        found.extend([record] if record is not None and record.message else [])
        return bool(found)

    await until(look)
    return found[-1]


@pytest.mark.proves(
    "TorchrunQueue.spec.weight",
    "TorchrunQueue.spec.maxNodes",
    "TorchrunQueue.spec.quota.gpus",
    "TorchrunQueue.spec.quota.cpus",
    "TorchrunQueue.spec.quota.memory",
    "TorchrunQueue.spec.quota.jobs",
    "TorchrunQueue.spec.cohort",
    "TorchrunQueue.spec.borrowingLimit.gpus",
    "TorchrunQueue.spec.borrowingLimit.cpus",
    "TorchrunQueue.spec.borrowingLimit.memory",
    "TorchrunQueue.spec.borrowingLimit.jobs",
)
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"maxNodes": 1}, "the job has 2 nodes, and queue {queue} allows 1 per job: ask for less, or raise maxNodes"),
        ({"quota": {"gpus": 1}}, "the job takes 2 GPUs, and queue {queue} may hold 1 GPU in all"),
        ({"quota": {"cpus": "500m"}}, "the job takes 2 CPUs, and queue {queue} may hold 500m CPU in all"),
        ({"quota": {"memory": "1Gi"}}, "the job takes 2Gi memory, and queue {queue} may hold 1Gi memory in all"),
        ({"quota": {"jobs": 0}, "weight": 3}, "the job takes 1 job, and queue {queue} may hold 0 jobs in all"),
        (
            {"quota": {"gpus": 1}, "cohort": "c1", "borrowingLimit": {"gpus": 0}},
            "the job takes 2 GPUs, and queue {queue} may hold 1 GPU in all",
        ),
        (
            {"quota": {"cpus": 1}, "cohort": "c2", "borrowingLimit": {"cpus": "500m"}},
            "the job takes 2 CPUs, and queue {queue} may hold 1500m CPUs in all",
        ),
        (
            {"quota": {"memory": "1Gi"}, "cohort": "c3", "borrowingLimit": {"memory": "512Mi"}},
            "the job takes 2Gi memory, and queue {queue} may hold 1536Mi memory in all",
        ),
        (
            {"quota": {"jobs": 0}, "cohort": "c4", "borrowingLimit": {"jobs": 0}},
            "the job takes 1 job, and queue {queue} may hold 0 jobs in all",
        ),
        ({"quota": {"gpus": 1}, "cohort": "c5"}, "the job takes 2 GPUs, and cohort c5 may hold 1 GPU in all"),
    ],
)
async def test_a_quota_below_a_single_job_says_so(
    cluster: tuple[Client, Connection, ScriptedKubelet], place: Place, spec: dict[str, Any], says: str
) -> None:
    _, account, _ = cluster
    await place.queue(nodeResources={"gpus": 1, "cpus": 1, "memory": "1Gi"}, **spec)
    await place.job("job", numNodes=2)
    async with running_operator(account, settings=coordinated()):
        await place.condition("Accepted", "Accepted", "queue", kind=TORCHRUN_QUEUE)
        said = await told(place)
        assert said.message.startswith(says.format(queue=f"{place.namespace}/queue"))
        assert said.reason == "NeverFits"
        assert not await place.exists(JOB, "job")


async def test_a_gang_for_no_node_says_what_would_fit(
    cluster: tuple[Client, Connection, ScriptedKubelet], place: Place
) -> None:
    _, account, _ = cluster
    await place.queue(nodeResources={"gpus": 8})
    await place.job("job", numNodes=9)
    async with running_operator(account, settings=coordinated()):
        said = await told(place)
        assert said.message.endswith("and the job has 9: numNodes 8 would fit")


async def test_a_preempted_gang_leaves_whole_and_comes_back(
    cluster: tuple[Client, Connection, ScriptedKubelet], place: Place
) -> None:
    """Of two of a lower priority the one that started last makes room for whom it is told, and waits for it to end."""
    _, account, kubelet = cluster
    await place.queue(nodeResources={"gpus": 8}, preemption="WithinQueue")
    async with running_operator(account, settings=coordinated()):
        for name in ("old", "new"):  # of one second, the first by name leaves
            await place.job(name, numNodes=4, runPolicy={"maxRestarts": 0})
            await place.reaches(Phase.RUNNING, name)
        await place.job("urgent", numNodes=4, priority=10)
        await place.reaches(Phase.RUNNING, "urgent")
        left = await place.reaches(Phase.QUEUED, "new")
        assert (left.status.attempt, left.status.restarts.by_cause) == (1, {"Preempted": 1})
        assert left.status.failure is not None
        assert left.status.failure.message == (
            f"the coordinator took its room back for TorchrunJob {place.namespace}/urgent: it waits for room again"
        )
        events = [event for event in await place.events("new") if event.reason == "Incident"]
        assert [f"TorchrunJob {place.namespace}/urgent" in event.message for event in events] == [True]
        assert not await place.exists(JOB, "new")
        assert (await job_of(place, "old")).status.restarts.total == 0
        await end(place, kubelet, "urgent")
        await place.in_attempt(1, "new")
        assert (await job_of(place, "old")).status.attempt == 0


async def test_half_a_gang_gives_its_nodes_back(
    cluster: tuple[Client, Connection, ScriptedKubelet], place: Place
) -> None:
    """A rule keeps its second pod away that the coordinator does not compute."""
    _, account, _ = cluster
    apart = {"labelSelector": {"matchLabels": {"torchrun.ai/role": "worker"}}, "topologyKey": "kubernetes.io/os"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    await place.queue(nodeResources={"gpus": 8}, scheduling={"affinity": affinity})
    await place.job("job", numNodes=2)
    async with running_operator(account, settings=coordinated(place_within_s=1.0)):
        found = await place.condition("Admitted", "PodsNotPlaced")
        assert "some of its pods found no node in time" in found.message
        job = await job_of(place, "job")
        assert (job.status.attempt, job.status.restarts.total) == (1, 0)
        assert job.status.admission is not None
        assert job.status.admission.misses == 1
        assert not await place.exists(JOB, "job")


@pytest.mark.proves("TorchrunQueue.spec.capacity")
async def test_an_autoscaler_sees_the_pods_that_lack_nodes(
    cluster: tuple[Client, Connection, ScriptedKubelet], place: Place
) -> None:
    """A job of more nodes than there are: its pods ask for the ninth. None comes, so the job gives the others back."""
    admin, account, _ = cluster
    await place.queue(nodeResources={"gpus": 8}, capacity="Autoscaled")
    await place.job("job", numNodes=NODES + 1)

    async def lacking() -> bool:
        there = await admin.list(POD, namespace=place.namespace, labels="torchrun.ai/job-name=job")
        return sorted(bool(pod.spec.node_name) for pod in there) == [False, *[True] * NODES]

    async with running_operator(account, settings=coordinated()):
        await until(lacking)
        assert (await place.condition("Admitted", "LetIn")).status == "True"
    async with running_operator(account, settings=coordinated(provision_within_s=1.0)):
        await place.condition("Admitted", "PodsNotPlaced")
        assert not await place.exists(JOB, "job")
