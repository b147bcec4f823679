"""What only the coordinator heeds is refused by name while it is off, never silently ignored."""

from collections.abc import Mapping
from typing import Any

import pytest
import pytest_asyncio
from jobs import Place

from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.testing.kubelet import ScriptedKubelet

QUEUES: dict[str, dict[str, Any]] = {
    "spec.weight": {"weight": 2},
    "spec.maxNodes": {"maxNodes": 4},
    "spec.quota.gpus": {"quota": {"gpus": 8}},
}


def named(fields: Mapping[str, Any], prefix: str) -> dict[str, str]:
    return {field: f"{prefix}-{number}" for number, field in enumerate(fields)}


QUEUE_NAMES = named(QUEUES, "queue")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(kubelet: ScriptedKubelet, place: Place) -> Place:
    await place.queue()
    for field, name in QUEUE_NAMES.items():
        await place.queue(name, **QUEUES[field])
    return place


@pytest.mark.proves("TorchrunQueue.spec.weight", "TorchrunQueue.spec.maxNodes", "TorchrunQueue.spec.quota.gpus")
@pytest.mark.parametrize("field", QUEUES)
async def test_a_queue_that_asks_for_it_is_not_accepted(place: Place, field: str) -> None:
    found = await place.condition("Accepted", "NotSupportedYet", QUEUE_NAMES[field], kind=TORCHRUN_QUEUE)
    assert (found.status, found.message) == (
        "False",
        f"{field}: only with the coordinator, which is off (--coordinator); remove the field",
    )


async def test_a_job_of_such_a_queue_waits_for_it(place: Place) -> None:
    queue = QUEUE_NAMES["spec.weight"]
    await place.job("waits", jobQueue=queue, numNodes=1)
    found = await place.condition("QueueFound", "QueueNotReady", "waits")
    assert "spec.weight" in found.message
    await place.admin.merge_patch(TORCHRUN_QUEUE, queue, {"spec": {"weight": 1}}, namespace=place.namespace)
    await place.reaches(Phase.SUCCEEDED, "waits")
