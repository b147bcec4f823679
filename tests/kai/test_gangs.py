"""KAI's own programs place the operator's gangs: whole, where they were asked to be, and say why they wait."""

from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from gangcluster import ENDLESS, FEW_RIGHTS, RACK, clear, node, told, workers
from jobs import Place
from waiting import until

from torchctl.api import labels
from torchctl.api.kube import KAI_PODGROUP, KAI_QUEUE, KaiQueue, Pod
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE, QueueStatus
from torchctl.controllers.gangs.groups import groups_of
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet

pytestmark = pytest.mark.usefixtures("podgrouper")

EITHER = pytest.mark.parametrize("podgrouper", ["all rights", FEW_RIGHTS], indirect=True)
WHOLE_NODES = {"gpus": 8}
TOPOLOGY = {
    "apiVersion": "kai.scheduler/v1alpha1",
    "kind": "Topology",
    "metadata": {"name": "network"},
    "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
}


def nodes_of(pods: Iterable[Pod]) -> list[str]:
    return sorted(pod.spec.node_name for pod in pods)


@EITHER
async def test_gang_that_does_not_fit_waits_for_another_node(place: Place, queue: str) -> None:
    """None of its pods is bound before all of them can be."""
    await place.queue(kaiQueue=queue, nodeResources=WHOLE_NODES)
    await place.job(numNodes=3)
    said = await told(place, "Admitted", "required for gang scheduling")
    assert (said.status, said.reason) == ("False", "WaitingForAdmission")
    pods = await workers(place)
    assert nodes_of(pods) == ["", "", ""]
    (group,) = await place.admin.list(KAI_PODGROUP, namespace=place.namespace)
    assert (list(groups_of(pods)), group.spec["minMember"]) == ([group.metadata.name], 3)
    third = (node("node-2", "a"),)
    async with ScriptedKubelet(place.admin, nodes=third, script=ENDLESS, binds_gangs=False):
        await place.reaches(Phase.RUNNING, timeout_s=60)
        assert nodes_of(await workers(place)) == ["node-0", "node-1", "node-2"]
        await clear(place)


@EITHER
async def test_in_kais_default_queue_a_gang_is_one_too(place: Place) -> None:
    await place.admin.apply(KAI_QUEUE, _kai_queue("default-queue"), force=True, field_manager="test")
    await place.queue(scheduling={"scheduler": "kai-scheduler"}, nodeResources=WHOLE_NODES)
    await place.job(numNodes=3)
    await told(place, "Admitted", "required for gang scheduling")
    assert nodes_of(await workers(place)) == ["", "", ""]


@pytest.mark.parametrize("podgrouper", [FEW_RIGHTS], indirect=True)
async def test_gang_that_the_podgrouper_made_smaller_is_reported(
    place: Place, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As KAI before 0.15 does, which does not know the annotation that keeps its podgrouper away."""
    for annotation in ("KAI_SKIP_PODGROUPER", "KAI_BATCH_MIN_MEMBER"):
        monkeypatch.setattr(labels, annotation, "kai.scheduler/unheard-of")
    await place.queue(kaiQueue=queue, nodeResources=WHOLE_NODES)
    await place.job(numNodes=3)
    said = await told(place, "Admitted", "may start without the others")
    assert (said.status, said.reason) == ("False", "GangTooSmall")
    await until(lambda: _holds(place, ["", "node-0", "node-1"]))


async def test_elastic_gang_starts_with_its_minimum_and_takes_free_nodes(place: Place, queue: str) -> None:
    await place.queue(kaiQueue=queue, nodeResources=WHOLE_NODES)
    await place.job(numNodes=4, elastic={"minNodes": 2, "maxNodes": 4})
    await place.condition("Admitted", "Admitted", timeout_s=60)
    (group,) = await place.admin.list(KAI_PODGROUP, namespace=place.namespace)
    assert group.spec["minMember"] == 2
    assert nodes_of(await workers(place)) == ["", "", "node-0", "node-1"]


async def test_pods_of_one_rack_wait_for_room_in_it(place: Place, queue: str, control_plane: ControlPlane) -> None:
    await control_plane.kubectl("apply", "-f-", input=yaml.safe_dump(TOPOLOGY))
    topology = {"topology": {"name": "network", "required": RACK}}
    await place.queue(kaiQueue=queue, scheduling=topology, nodeResources=WHOLE_NODES)
    await place.job(numNodes=2)
    said = await told(place, "Admitted", "topology")
    assert said.reason == "WaitingForAdmission"
    assert nodes_of(await workers(place)) == ["", ""]
    beside = (node("node-3", "b"),)
    async with ScriptedKubelet(place.admin, nodes=beside, script=ENDLESS, binds_gangs=False):
        await place.reaches(Phase.RUNNING, timeout_s=60)
        assert nodes_of(await workers(place)) == ["node-1", "node-3"]
        await clear(place)


async def test_a_topology_that_does_not_exist_is_said(place: Place, queue: str) -> None:
    topology = {"topology": {"name": "nowhere", "required": RACK}}
    await place.queue(kaiQueue=queue, scheduling=topology, nodeResources=WHOLE_NODES)
    await place.job(numNodes=2)
    await told(place, "Admitted", "nowhere")


@pytest.mark.parametrize("policy", ["Manage", "Reference"])
async def test_queue_status_shows_allocated_and_requested_gpus(place: Place, queue: str, policy: str) -> None:
    """The status is the same under both policies, and costs no write to the KAI Queue."""
    if policy == "Reference":
        await place.admin.create(KAI_QUEUE, _kai_queue(queue))
    await place.queue(kaiQueue=queue, kaiQueuePolicy=policy, nodeResources=WHOLE_NODES)
    before = await _written(place, queue)
    await place.job(numNodes=1)
    await place.job("large", numNodes=4)
    await place.reaches(Phase.RUNNING, timeout_s=60)
    await until(lambda: _shows(place, allocated=8, requested=40), timeout_s=60)
    assert await _written(place, queue) == before


def _kai_queue(name: str) -> dict[str, Any]:
    """A KAI Queue without bounds, as an administrator makes it."""
    bounds = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": {"gpu": bounds, "cpu": bounds, "memory": bounds}}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


async def _holds(place: Place, nodes: list[str]) -> bool:
    return nodes_of(await workers(place)) == nodes


async def _written(place: Place, queue: str) -> dict[str, Any]:
    async def look() -> KaiQueue | None:
        return next((one for one in await place.admin.list(KAI_QUEUE) if one.metadata.name == queue), None)

    found = await until(look)
    assert found is not None
    return {"spec": found.spec, "annotations": found.metadata.annotations}


async def _shows(place: Place, *, allocated: int, requested: int) -> bool:
    status: QueueStatus = (await place.admin.get(TORCHRUN_QUEUE, "queue", place.namespace)).status
    kai = status.kai_queue
    if kai is None:
        return False
    amounts = (kai.allocated.get("nvidia.com/gpu"), kai.requested.get("nvidia.com/gpu"))
    return amounts == (str(allocated), str(requested))
