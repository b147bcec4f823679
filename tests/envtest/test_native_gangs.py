"""Kubernetes' own gangs, on a control plane that serves them: kube-scheduler places all pods of a job, or none."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from clusters import install
from gangcluster import ENDLESS, clear, node, told, workers
from jobs import Place
from operators import background_operator

from torchctl.api.nativegangs import NATIVE_PODGROUP
from torchctl.api.phases import Phase
from torchctl.controllers.gangs.groups import groups_of
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
QUEUE: dict[str, Any] = {"scheduling": {"scheduler": "kubernetes"}, "nodeResources": {"gpus": 8}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place() -> AsyncGenerator[Place]:
    """A control plane of its own with two nodes of eight GPUs, and the operator under its own account."""
    async with ControlPlane(options=SERVED) as plane, plane.client() as admin:
        account = await install(plane)
        here = Place(admin, fresh_name("team"))
        await create_namespace(admin, here.namespace)
        nodes = (node("node-0", "a"), node("node-1", "b"))
        async with ScriptedKubelet(admin, nodes=nodes, script=ENDLESS), background_operator(account):
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
