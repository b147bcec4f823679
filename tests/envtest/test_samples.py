"""The samples of config/samples run to Succeeded as they are, on nodes that follow a script."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio
import yaml
from jobs import Place, a_kai_queue
from operators import background_operator

from torchctl.api.kube import KAI_PODGROUP, KAI_QUEUE, POD
from torchctl.api.labels import JOB_NAME
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet

SAMPLES = Path(__file__).resolve().parents[2] / "config" / "samples"
JOBS = sorted(SAMPLES.glob("job-*.yaml"))
KAI_PARENT = "default-parent-queue"


@pytest_asyncio.fixture(loop_scope="session")
async def place(
    control_plane: ControlPlane,
    admin: Client,
    namespace: str,
    kubelet: ScriptedKubelet,
    operator_account: Connection,
) -> AsyncGenerator[Place]:
    """A namespace with the sample queues in it, and the parent that KAI's chart makes."""
    place = Place(admin, namespace)
    await admin.create(KAI_QUEUE, a_kai_queue(KAI_PARENT))
    async with background_operator(operator_account, namespace):
        for path in sorted(SAMPLES.glob("queue-*.yaml")):
            await control_plane.kubectl("apply", f"--namespace={namespace}", "-f", str(path))
            await place.condition("Ready", "Ready", name_in(path), kind=TORCHRUN_QUEUE)
        yield place
        await admin.delete(TORCHRUN_QUEUE, "gpu", namespace=namespace)
        await place.gone(KAI_QUEUE, "team-gpu")
    await admin.delete(KAI_QUEUE, KAI_PARENT)


def name_in(path: Path) -> str:
    name: str = yaml.safe_load(path.read_text())["metadata"]["name"]
    return name


async def test_every_sample_job_runs_to_succeeded(place: Place, control_plane: ControlPlane) -> None:
    for path in JOBS:
        await control_plane.kubectl("apply", f"--namespace={place.namespace}", "-f", str(path))
    for path in JOBS:
        await place.reaches(Phase.SUCCEEDED, name_in(path), timeout_s=60)
    (group,) = await place.admin.list(KAI_PODGROUP, namespace=place.namespace)
    assert (group.spec["queue"], group.spec["minMember"]) == ("team-gpu", 2)
    pods = await place.admin.list(POD, namespace=place.namespace, labels=f"{JOB_NAME}=ddp-16-gpus")
    assert len(pods) == 2
