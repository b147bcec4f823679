"""A job from submission to its end, and its children's, on the real control plane."""

from typing import Any

import pytest
from jobs import Place
from operators import running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD, PVC, SERVICE
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Kind

pytestmark = pytest.mark.usefixtures("kubelet")


@pytest.fixture
def place(admin: Client, namespace: str) -> Place:
    return Place(admin, namespace)


async def test_a_job_without_a_workspace_succeeds(place: Place, operator_account: Connection) -> None:
    await place.queue()
    await place.job()
    async with running_operator(operator_account, place.namespace):
        job = await place.reaches(Phase.SUCCEEDED)
    assert (job.status.workers.succeeded, job.status.nodes.desired) == (2, 2)
    assert await place.admin.list(PVC, namespace=place.namespace) == []


async def test_a_job_may_come_before_its_queue(place: Place, operator_account: Connection) -> None:
    async with running_operator(operator_account, place.namespace):
        await place.job()
        found = await place.condition("QueueFound", "QueueNotFound")
        assert "TorchrunQueue queue " in found.message
        await place.reaches(Phase.PENDING)
        await place.queue()
        await place.reaches(Phase.SUCCEEDED)


async def test_children_of_a_deleted_job_go_without_the_operator(place: Place, operator_account: Connection) -> None:
    await place.queue(storage={"workspace": {"enabled": True, "accessModes": ["ReadWriteMany"]}})
    await place.job()
    async with running_operator(operator_account, place.namespace):
        await place.reaches(Phase.SUCCEEDED)
    await place.admin.delete(TORCHRUN_JOB, "job", namespace=place.namespace)

    async def gone() -> bool:
        kinds: tuple[Kind[Any], ...] = (JOB, POD, PVC, SERVICE)
        return not [child for kind in kinds for child in await place.admin.list(kind, namespace=place.namespace)]

    # kube-controller-manager's garbage collector looks for new CRDs every 30 s.
    await until(gone, timeout_s=90)
