"""Kubernetes' own gangs, on a control plane of which some feature gates are off: each job says what is wrong."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from clusters import install
from gangcluster import ENDLESS, clear, node, told, workers
from jobs import Place
from operators import background_operator
from waiting import until

from torchctl.api.kube import JOB
from torchctl.api.phases import Phase
from torchctl.testing.components import Options
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name

pytestmark = pytest.mark.kubernetes("1.36", "scheduling.k8s.io/v1alpha2")

GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
SERVED = "--runtime-config=scheduling.k8s.io/v1alpha2=true"
API_SERVER_ALONE = Options(flags={"kube-apiserver": (GATES, SERVED)})
QUEUE: dict[str, Any] = {"scheduling": {"scheduler": "kubernetes"}, "nodeResources": {"gpus": 8}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane() -> AsyncGenerator[ControlPlane]:
    """A control plane whose API server alone has the gates."""
    async with ControlPlane(options=API_SERVER_ALONE) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(plane: ControlPlane) -> AsyncGenerator[Place]:
    """Two nodes of eight GPUs, and the operator under its own account."""
    account = await install(plane)
    nodes = (node("node-0", "a"), node("node-1", "b"))
    async with plane.client() as admin:
        here = Place(admin, fresh_name("team"))
        await create_namespace(admin, here.namespace)
        async with ScriptedKubelet(admin, nodes=nodes, script=ENDLESS), background_operator(account):
            await here.queue(**QUEUE)
            yield here


async def test_kube_scheduler_that_knows_no_gangs_is_told(place: Place) -> None:
    """It binds two of three pods, which hold their nodes, and says nothing of the PodGroup."""
    await place.job(numNodes=3)
    said = await told(place, "Admitted", "the scheduler says nothing of PodGroup")
    assert (said.status, said.reason) == ("False", "GangTooSmall")
    assert "switch on the feature gates GenericWorkload and GangScheduling of kube-apiserver" in said.message
    assert sorted(bool(pod.spec.node_name) for pod in await workers(place)) == [False, True, True]
    await clear(place)


async def test_gang_that_fits_is_admitted_all_the_same(place: Place) -> None:
    await place.job("fits", numNodes=2)
    await place.reaches(Phase.RUNNING, "fits", timeout_s=60)
    await place.condition("Admitted", "Admitted", "fits")
    await clear(place)


async def test_membership_dropped_while_gates_were_off_is_told(place: Place, plane: ControlPlane) -> None:
    """The gate that keeps the field also serves the kind, so the API server shows both states one after the other."""
    await plane.stop("kube-controller-manager")
    await place.job("late", numNodes=3)

    async def made() -> bool:
        return await place.exists(JOB, "late")

    await until(made)
    await plane.restart("kube-apiserver", flags=[SERVED])
    await plane.start("kube-controller-manager")

    async def bound() -> bool:
        return sorted(bool(pod.spec.node_name) for pod in await workers(place, "late")) == [False, True, True]

    await until(bound, timeout_s=60)
    assert {pod.spec.scheduling_group for pod in await workers(place, "late")} == {None}
    said = await place.condition("Admitted", "NativeGangsOff", "late", timeout_s=60)
    assert "--runtime-config=scheduling.k8s.io/v1alpha2=true and the feature gates" in said.message
    await plane.restart("kube-apiserver", flags=[GATES, SERVED])
    said = await told(place, "Admitted", "is in no PodGroup, the API server has dropped it", "late", timeout_s=120)
    assert (said.status, said.reason) == ("False", "GangTooSmall")
