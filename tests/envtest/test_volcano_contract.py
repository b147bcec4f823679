"""What the operator writes and reads of Volcano is what Volcano's own CRDs have: the API server drops nothing of it."""

import os
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from clusters import VOLCANO_CRDS, install_volcano
from contracts import missing, schema_of, sent

from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.api.volcano import (
    VOLCANO_PODGROUP,
    VOLCANO_QUEUE,
    VolcanoPodGroupStatus,
    VolcanoQueueStatus,
)
from torchctl.controllers.gangs.volcano import FrozenVolcano
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.podgroup import pod_group
from torchctl.controllers.job.template.frozen import FrozenElastic, FrozenRendezvous, FrozenTemplate
from torchctl.controllers.queue.volcano import volcano_queue
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.controlplane import CommandFailed, ControlPlane

pytestmark = pytest.mark.skipif(
    not os.environ.get(VOLCANO_CRDS), reason=f"{VOLCANO_CRDS} names no directory with Volcano's CRDs"
)

FIXED = FrozenTemplate(
    queue="research",
    nodes=4,
    nproc_per_node=8,
    backend="nccl",
    rendezvous=FrozenRendezvous(backend="c10d", port=29500),
    cluster_domain="cluster.local",
    operator_image="torchctl:test",
    volcano=FrozenVolcano(queue="train", gang=True),
    pod={"metadata": {}, "spec": {"priorityClassName": "high"}},
)
ELASTIC = msgspec.structs.replace(FIXED, elastic=FrozenElastic(min_nodes=1, max_nodes=8))
ALONE = msgspec.structs.replace(FIXED, volcano=FrozenVolcano(queue="train", gang=False))


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def installed(control_plane: ControlPlane) -> None:
    """Volcano's CRDs, as it ships them."""
    await install_volcano(control_plane)


@pytest.mark.parametrize("template", [FIXED, ELASTIC, ALONE], ids=["fixed", "elastic", "alone"])
async def test_the_pod_group_of_an_attempt_is_one_of_volcanos(
    control_plane: ControlPlane, namespace: str, template: FrozenTemplate
) -> None:
    body = pod_group(Owner("demo", namespace, "0c5f", "research"), template, 2)
    assert (await sent(control_plane, body))["spec"] == body["spec"]


async def test_a_field_that_volcano_does_not_have_would_be_noticed(control_plane: ControlPlane, namespace: str) -> None:
    body = pod_group(Owner("demo", namespace, "0c5f", "research"), ELASTIC, 0)
    body["spec"]["subGroupPolicy"][0]["subGroupName"] = "host"
    with pytest.raises(CommandFailed, match="subGroupName"):
        await sent(control_plane, body)


async def test_the_queue_that_the_operator_makes_is_one_of_volcanos(control_plane: ControlPlane) -> None:
    quota = {"gpus": 16, "cpus": "64", "memory": "1Ti"}
    scheduling = {"volcanoQueue": "contract", "volcanoQueuePolicy": "Manage"}
    spec = QueueSpec.model_validate({"scheduling": scheduling, "weight": 3, "quota": quota})
    body = volcano_queue(TorchrunQueue(ObjectMeta(name="gpu", namespace="team", uid="uid"), spec))
    made = await sent(control_plane, body)
    assert made["spec"].items() >= body["spec"].items()


@pytest.mark.parametrize(
    ("kind", "status"),
    [(VOLCANO_PODGROUP, VolcanoPodGroupStatus), (VOLCANO_QUEUE, VolcanoQueueStatus)],
    ids=["PodGroup", "Queue"],
)
def test_each_status_field_that_is_read_exists_in_volcano(kind: Kind[Any], status: type) -> None:
    assert missing(status, schema_of(os.environ[VOLCANO_CRDS], kind), "status") == []
