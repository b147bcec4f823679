"""Volcano's own programs place the operator's gangs: whole or not at all, with worker 0, and say why they wait."""

from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from gangcluster import ENDLESS, clear, node, told, workers
from jobs import Place
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD, Pod
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.api.volcano import VOLCANO_PODGROUP, VOLCANO_QUEUE
from torchctl.controllers.gangs.groups import groups_of
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet

WHOLE_NODES = {"gpus": 8}
VOLCANO = {"scheduler": "volcano"}


def nodes_of(pods: Iterable[Pod]) -> list[str]:
    return sorted(pod.spec.node_name for pod in pods)


async def make_queue(cluster: ControlPlane, name: str) -> None:
    """A Queue of Volcano's, as an administrator makes it, once Volcano takes pods into it."""
    body = {"apiVersion": VOLCANO_QUEUE.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}}
    await cluster.kubectl("apply", "-f-", input=yaml.safe_dump(body))


async def command(cluster: ControlPlane, action: str, queue: dict[str, Any]) -> None:
    """Asks Volcano to open or close a Queue, as its own command line does."""
    target = {"apiVersion": VOLCANO_QUEUE.api_version, "kind": "Queue", "name": queue["name"], "uid": queue["uid"]}
    reference = target | {"controller": True, "blockOwnerDeletion": True}
    meta = {"generateName": f"{queue['name']}-", "namespace": "default", "ownerReferences": [reference]}
    kind = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command"}
    body = {**kind, "metadata": meta, "action": action, "target": reference}
    await cluster.kubectl("create", "-f-", input=yaml.safe_dump(body))


async def test_gang_that_does_not_fit_waits_for_another_node(place: Place) -> None:
    """None of its pods is bound before all of them can be."""
    await place.queue(scheduling=VOLCANO, nodeResources=WHOLE_NODES)
    await place.job(numNodes=3)
    said = await told(place, "Admitted", "tasks in gang unschedulable")
    assert (said.status, said.reason) == ("False", "WaitingForAdmission")
    pods = await workers(place)
    assert nodes_of(pods) == ["", "", ""]
    (group,) = await place.admin.list(VOLCANO_PODGROUP, namespace=place.namespace)
    assert (list(groups_of(pods)), group.spec["minMember"]) == ([group.metadata.name], 3)
    third = (node("node-2", "a"),)
    async with ScriptedKubelet(place.admin, nodes=third, script=ENDLESS, binds_gangs=False):
        await place.reaches(Phase.RUNNING, timeout_s=60)
        assert nodes_of(await workers(place)) == ["node-0", "node-1", "node-2"]
        await clear(place)


async def test_two_gangs_for_the_same_nodes_hold_none_by_half(place: Place) -> None:
    """Neither holds a node that the other needs."""
    await place.queue(scheduling=VOLCANO, nodeResources=WHOLE_NODES)
    for name in ("first", "second"):
        await place.job(name)

    async def look() -> list[str]:
        every = {name: nodes_of(await workers(place, name)) for name in ("first", "second")}
        assert not all(any(nodes) for nodes in every.values()), every  # Volcano binds the pods of one gang one by one
        return [name for name, nodes in every.items() if nodes == ["node-0", "node-1"]]

    (winner,) = await until(look, timeout_s=60) or []
    await place.reaches(Phase.RUNNING, winner, timeout_s=60)


@pytest.mark.parametrize("size", [3, 4])
async def test_elastic_gang_starts_with_its_minimum_and_worker_0(place: Place, size: int) -> None:
    await place.queue(scheduling=VOLCANO, nodeResources=WHOLE_NODES)
    await place.job(numNodes=size, elastic={"minNodes": 2, "maxNodes": 4})
    await place.condition("Admitted", "Admitted", timeout_s=60)
    (group,) = await place.admin.list(VOLCANO_PODGROUP, namespace=place.namespace)
    assert group.spec["minMember"] == 2
    pods = await workers(place)
    assert nodes_of(pods) == [*[""] * (size - 2), "node-0", "node-1"]
    assert pods[0].spec.node_name


async def test_missing_queue_is_named_until_it_is_there(place: Place, queue: str, control_plane: ControlPlane) -> None:
    await place.queue(scheduling={"volcanoQueue": queue}, nodeResources=WHOLE_NODES)
    await place.job()
    said = await told(place, "Admitted", f"its Queue {queue} does not exist")
    assert (said.status, said.reason) == ("False", "WaitingForAdmission")
    await make_queue(control_plane, queue)
    await place.reaches(Phase.RUNNING, timeout_s=60)


async def test_closed_queue_is_named_until_it_is_open(place: Place, queue: str, control_plane: ControlPlane) -> None:
    await make_queue(control_plane, queue)

    async def state() -> str:
        found = await place.admin.get(VOLCANO_QUEUE, queue)
        return found.status.state if found.status is not None else ""

    async def becomes(wanted: str) -> None:
        async def look() -> bool:
            return await state() == wanted

        await until(look, timeout_s=30)

    await becomes("Open")
    found = await place.admin.get(VOLCANO_QUEUE, queue)
    reference = {"name": queue, "uid": found.metadata.uid}
    await command(control_plane, "CloseQueue", reference)
    await becomes("Closed")
    await place.queue(scheduling={"volcanoQueue": queue}, nodeResources=WHOLE_NODES)
    await place.job()
    await told(place, "Admitted", f"its Queue {queue} is Clos")
    assert nodes_of(await workers(place)) == ["", ""]
    await command(control_plane, "OpenQueue", reference)
    await place.reaches(Phase.RUNNING, timeout_s=60)


async def test_job_that_ended_leaves_no_pod_group(place: Place) -> None:
    """Its Queue could not be closed otherwise."""
    await place.queue(scheduling=VOLCANO, nodeResources=WHOLE_NODES)
    await place.job(runPolicy={"restartPolicy": "Never"})
    await place.reaches(Phase.RUNNING, timeout_s=60)
    pod = (await workers(place))[0]
    await place.admin.delete(POD, pod.metadata.name, namespace=place.namespace)
    await place.reaches(Phase.FAILED, timeout_s=60)

    async def none_left() -> bool:
        return not await place.admin.list(VOLCANO_PODGROUP, namespace=place.namespace)

    await until(none_left, timeout_s=60)


async def test_managed_queue_takes_pods_and_goes_with_its_queue(place: Place, queue: str) -> None:
    """Its quota holds: a job waits although a node is free, which one in another Queue then takes."""
    scheduling = {"volcanoQueue": queue, "volcanoQueuePolicy": "Manage"}
    await place.queue(scheduling=scheduling, nodeResources=WHOLE_NODES, quota={"gpus": 8}, weight=2)
    await place.condition("VolcanoQueueReady", "VolcanoQueueReady", "queue", kind=TORCHRUN_QUEUE)
    await place.job("first", numNodes=1)
    await place.reaches(Phase.RUNNING, "first", timeout_s=60)
    await place.job("second", numNodes=1)
    await place.condition("Admitted", "WaitingForAdmission", "second")
    await place.queue("other", scheduling=VOLCANO, nodeResources=WHOLE_NODES)
    await place.job("third", jobQueue="other", numNodes=1)
    await place.reaches(Phase.RUNNING, "third", timeout_s=60)
    await place.condition("Admitted", "WaitingForAdmission", "second")
    assert nodes_of(await workers(place, "second")) == [""]
    await place.admin.delete(TORCHRUN_JOB, "third", namespace=place.namespace)
    more: dict[str, Any] = {"spec": {"quota": {"gpus": 16}}}
    await place.admin.merge_patch(TORCHRUN_QUEUE, "queue", more, namespace=place.namespace)
    await place.reaches(Phase.RUNNING, "second", timeout_s=60)
    await place.admin.delete(TORCHRUN_QUEUE, "queue", namespace=place.namespace)
    await place.condition("VolcanoQueueReady", "Deleting", "queue", kind=TORCHRUN_QUEUE)
    await clear(place)
    await place.gone(TORCHRUN_QUEUE, "queue", timeout_s=60)
    assert not await place.exists(VOLCANO_QUEUE, queue)
