"""What the operator writes and reads of KAI is what KAI's own CRDs have: the API server drops nothing of it."""

import os
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from clusters import KAI_CRDS, install_kai
from contracts import missing, schema_of, sent

from torchctl.api.kube import KAI_PODGROUP, KAI_QUEUE, KaiPodGroupStatus, KaiQueueStatus
from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.podgroup import pod_group
from torchctl.controllers.job.template.frozen import (
    FrozenElastic,
    FrozenKai,
    FrozenRendezvous,
    FrozenTemplate,
    FrozenTopology,
)
from torchctl.controllers.queue.kai import kai_queue
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.controlplane import CommandFailed, ControlPlane

pytestmark = pytest.mark.skipif(not os.environ.get(KAI_CRDS), reason=f"{KAI_CRDS} names no directory with KAI's CRDs")

FIXED = FrozenTemplate(
    queue="research",
    nodes=4,
    nproc_per_node=8,
    backend="nccl",
    rendezvous=FrozenRendezvous(backend="c10d", port=29500),
    cluster_domain="cluster.local",
    operator_image="torchctl:test",
    kai=FrozenKai(
        queue="gpus",
        gang=True,
        topology=FrozenTopology(name="network", required="topology.test/zone", preferred="topology.test/rack"),
    ),
    pod={"metadata": {}, "spec": {"priorityClassName": "train"}},
)
ELASTIC = msgspec.structs.replace(FIXED, elastic=FrozenElastic(min_nodes=1, max_nodes=8))
QUEUE = {
    "kaiQueue": "gpus",
    "parentKaiQueue": "everybody",
    "kaiPriority": 7,
    "preemptMinRuntime": "10m",
    "reclaimMinRuntime": "1h",
    "kaiResources": {"gpu": {"quota": 8.5, "limit": -1}, "cpu": {"quota": 96}, "memory": {"limit": "512Gi"}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def installed(control_plane: ControlPlane) -> None:
    """KAI's CRDs, as it ships them."""
    await install_kai(control_plane)


@pytest.mark.parametrize("template", [FIXED, ELASTIC], ids=["fixed", "elastic"])
async def test_the_pod_group_of_an_attempt_is_one_of_kais(
    control_plane: ControlPlane, namespace: str, template: FrozenTemplate
) -> None:
    body = pod_group(Owner("demo", namespace, "0c5f", "research"), template, 2)
    assert (await sent(control_plane, body))["spec"] == body["spec"]


async def test_the_queue_of_a_queue_is_one_of_kais(control_plane: ControlPlane) -> None:
    meta = ObjectMeta(name="research", namespace="team", uid="0c5f")
    body = kai_queue(TorchrunQueue(meta, QueueSpec.model_validate(QUEUE)))
    assert (await sent(control_plane, body))["spec"] == body["spec"]


async def test_a_field_that_kai_does_not_have_would_be_noticed(control_plane: ControlPlane, namespace: str) -> None:
    body = pod_group(Owner("demo", namespace, "0c5f", "research"), FIXED, 0)
    body["spec"]["topologyConstraint"]["requiredLevel"] = "rack"
    with pytest.raises(CommandFailed, match="requiredLevel"):
        await sent(control_plane, body)


UNKNOWN_TO_KAI = {"status.phase"}
"""KAI before 0.15 had it."""


@pytest.mark.parametrize(
    ("kind", "status"),
    [(KAI_PODGROUP, KaiPodGroupStatus), (KAI_QUEUE, KaiQueueStatus)],
    ids=["PodGroup", "Queue"],
)
def test_each_status_field_that_is_read_exists_in_kai(kind: Kind[Any], status: type) -> None:
    found = missing(status, schema_of(os.environ[KAI_CRDS], kind), "status")
    assert set(found) <= UNKNOWN_TO_KAI
