"""Kubernetes' own gangs, on a control plane that serves them: kube-scheduler places all pods of a job, or none."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from clusters import install
from gangcluster import ENDLESS, clear, node, told, workers
from gangstories import NATIVE
from jobs import Place
from operators import background_operator
from scenes import queues_and_jobs, scene_of
from snapshots import count
from sweeps import MAY_BE_MISSED, WHOLE, chosen, sweep, undisturbed, workers_made

from torchctl.api.nativegangs import NATIVE_PODGROUP
from torchctl.api.phases import Phase
from torchctl.controllers.gangs.groups import groups_of
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.audit import read_audit_log
from torchctl.testing.components import Options
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name

pytestmark = pytest.mark.kubernetes("1.36", "scheduling.k8s.io/v1alpha2")

GATES = ("--feature-gates=GenericWorkload=true,GangScheduling=true",)
SERVED = Options(
    flags={
        "kube-apiserver": (*GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"),
        "kube-controller-manager": GATES,
        "kube-scheduler": GATES,
    }
)
AT_ONCE = 8
QUEUE: dict[str, Any] = {"scheduling": {"scheduler": "kubernetes"}, "nodeResources": {"gpus": 8}}


@dataclass(frozen=True)
class Cluster:
    """A control plane of its own with two nodes of eight GPUs, the operator's account and whoever may do everything."""

    plane: ControlPlane
    admin: Client
    account: Connection
    kubelet: ScriptedKubelet


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster() -> AsyncGenerator[Cluster]:
    async with ControlPlane(options=SERVED) as plane, plane.client() as admin:
        account = await install(plane)
        nodes = (node("node-0", "a"), node("node-1", "b"))
        async with ScriptedKubelet(admin, nodes=nodes, script=ENDLESS) as kubelet:
            yield Cluster(plane, admin, account, kubelet)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(cluster: Cluster) -> AsyncGenerator[Place]:
    """A namespace with a queue, and the operator under its own account."""
    here = Place(cluster.admin, fresh_name("team"))
    await create_namespace(cluster.admin, here.namespace)
    async with background_operator(cluster.account, here.namespace):
        await here.queue(**QUEUE)
        yield here


async def test_gang_that_does_not_fit_waits_for_another_node(place: Place) -> None:
    """None of its pods is bound before all of them can be; the field that makes them members is kept."""
    await place.job(numNodes=3)
    said = await told(place, "Admitted", "unschedulable")
    assert (said.status, said.reason) == ("False", "WaitingForAdmission")
    pods = await workers(place)
    (group,) = await place.admin.list(NATIVE_PODGROUP, namespace=place.namespace)
    assert [pod.spec.node_name for pod in pods] == ["", "", ""]
    assert groups_of(pods) == {group.metadata.name}
    third = (node("node-2", "a"),)
    async with ScriptedKubelet(place.admin, nodes=third, script=ENDLESS):
        await place.reaches(Phase.RUNNING, timeout_s=60)
        await clear(place)


async def test_two_gangs_for_the_same_nodes_hold_none_by_half(place: Place) -> None:
    await place.job("first")
    await place.reaches(Phase.RUNNING, "first", timeout_s=60)
    await place.job("second")
    await told(place, "Admitted", "unschedulable", "second")
    assert [pod.spec.node_name for pod in await workers(place, "second")] == ["", ""]
    await clear(place)


async def test_elastic_job_is_refused_by_name(place: Place) -> None:
    await place.job("grows", elastic={"minNodes": 1, "maxNodes": 2})
    found = await place.condition("Accepted", "InvalidSpec", "grows")
    assert "spec.elastic" in found.message


@pytest.mark.timeout(1800)
async def test_crash_at_any_write_keeps_the_gang_whole(cluster: Cluster, report: Callable[[str], None]) -> None:
    """PodGroups are made before their pods and deleted after them, whoever is cut down between these."""
    log = cluster.plane.audit_log
    start = log.stat().st_size
    async with (
        AiohttpTransport(cluster.plane.connection()) as transport,
        cluster.plane.client() as client,
        queues_and_jobs(client) as cache,
    ):
        connection = cluster.plane.connection()
        scene = scene_of(cluster.admin, transport, connection, cache, cluster.kubelet, cluster.account)
        sweeps = await undisturbed(scene, [NATIVE], times=2 if WHOLE else 1, at_once=2)
        points = chosen(sweeps)
        await sweep(scene, sweeps, points, at_once=AT_ONCE)
    report(str(sweeps[0]))
    assert "NativePodGroup" in count(sweeps[0].normal[0].done)
    assert sweeps[0].problems() == []
    assert len(sweeps[0].missed) <= MAY_BE_MISSED * len(points[0])
    assert workers_made(read_audit_log(log, start), sweeps) == []
