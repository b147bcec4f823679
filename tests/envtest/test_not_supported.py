"""What does not work yet is refused by name, never silently ignored."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from jobs import Place
from operators import background_operator

from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import NAMESPACE, create_namespace, fresh_name

QUEUES: dict[str, dict[str, Any]] = {
    "spec.scheduling.scheduler volcano": {"scheduling": {"scheduler": "volcano"}},
    "spec.weight": {"weight": 2},
    "spec.maxNodes": {"maxNodes": 4},
    "spec.quota.gpus": {"quota": {"gpus": 8}},
}


def named(fields: Mapping[str, Any], prefix: str) -> dict[str, str]:
    return {field: f"{prefix}-{number}" for number, field in enumerate(fields)}


QUEUE_NAMES = named(QUEUES, "queue")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    namespace = fresh_name("not-supported")
    await create_namespace(admin, namespace)
    here = Place(admin, namespace)
    await here.queue()
    for field, name in QUEUE_NAMES.items():
        await here.queue(name, **QUEUES[field])
    async with background_operator(operator_account, namespace):
        yield here
    await admin.delete(NAMESPACE, namespace)


@pytest.mark.proves("TorchrunQueue.spec.weight", "TorchrunQueue.spec.maxNodes", "TorchrunQueue.spec.quota.gpus")
@pytest.mark.parametrize("field", QUEUES)
async def test_a_queue_that_asks_for_it_is_not_accepted(place: Place, field: str) -> None:
    found = await place.condition("Accepted", "NotSupportedYet", QUEUE_NAMES[field], kind=TORCHRUN_QUEUE)
    assert (found.status, found.message) == ("False", f"{field}: not supported yet; remove the field")


async def test_a_job_of_such_a_queue_waits_for_it(place: Place) -> None:
    queue = QUEUE_NAMES["spec.weight"]
    await place.job("waits", jobQueue=queue, numNodes=1)
    found = await place.condition("QueueFound", "QueueNotReady", "waits")
    assert "spec.weight" in found.message
    await place.admin.merge_patch(TORCHRUN_QUEUE, queue, {"spec": {"weight": 1}}, namespace=place.namespace)
    await place.reaches(Phase.SUCCEEDED, "waits")
