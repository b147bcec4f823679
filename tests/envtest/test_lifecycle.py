"""A job from submission to its end, and its children's, on the real control plane."""

from typing import Any

import pytest
from operators import running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import JOB, POD, PVC, SERVICE
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Kind
from torchctl.testing.kubelet import ScriptedKubelet

pytestmark = pytest.mark.usefixtures("kubelet")


def a_queue(namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "torchrun.ai/v1alpha1",
        "kind": "TorchrunQueue",
        "metadata": {"name": "queue", "namespace": namespace},
        "spec": {"image": "trainer:1", **spec},
    }


def a_job(namespace: str, name: str = "job", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "torchrun.ai/v1alpha1",
        "kind": "TorchrunJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"jobQueue": "queue", "numNodes": 2, "command": "python train.py", **spec},
    }


async def job_in_phase(admin: Client, namespace: str, phase: Phase, name: str = "job") -> TorchrunJob:
    async def look() -> TorchrunJob | None:
        job = await admin.get(TORCHRUN_JOB, name, namespace)
        return job if job.status.phase == phase else None

    job = await until(look)
    assert job is not None
    return job


async def test_a_job_without_a_workspace_succeeds(admin: Client, namespace: str, operator_account: Connection) -> None:
    await admin.create(TORCHRUN_QUEUE, a_queue(namespace))
    await admin.create(TORCHRUN_JOB, a_job(namespace))
    async with running_operator(operator_account, namespace):
        job = await job_in_phase(admin, namespace, Phase.SUCCEEDED)
    assert (job.status.workers.succeeded, job.status.nodes.desired) == (2, 2)
    assert await admin.list(PVC, namespace=namespace) == []


async def test_a_job_may_come_before_its_queue(admin: Client, namespace: str, operator_account: Connection) -> None:
    async with running_operator(operator_account, namespace):
        await admin.create(TORCHRUN_JOB, a_job(namespace))
        job = await job_in_phase(admin, namespace, Phase.PENDING)
        assert "queue" in next(c.message for c in job.status.conditions if c.type == "QueueFound")
        await admin.create(TORCHRUN_QUEUE, a_queue(namespace))
        await job_in_phase(admin, namespace, Phase.SUCCEEDED)


async def test_deleting_a_job_removes_its_children_while_the_operator_is_down(
    admin: Client, namespace: str, operator_account: Connection, kubelet: ScriptedKubelet
) -> None:
    workspace = {"enabled": True, "accessModes": ["ReadWriteMany"]}
    await admin.create(TORCHRUN_QUEUE, a_queue(namespace, storage={"workspace": workspace}))
    await admin.create(TORCHRUN_JOB, a_job(namespace))
    async with running_operator(operator_account, namespace):
        await job_in_phase(admin, namespace, Phase.SUCCEEDED)
    await admin.delete(TORCHRUN_JOB, "job", namespace=namespace)

    async def gone() -> bool:
        kinds: tuple[Kind[Any], ...] = (JOB, POD, PVC, SERVICE)
        return not [child for kind in kinds for child in await admin.list(kind, namespace=namespace)]

    # kube-controller-manager's garbage collector looks for new CRDs every 30 s.
    await until(gone, timeout_s=90)
