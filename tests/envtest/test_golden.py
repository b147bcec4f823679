"""What a job becomes on a real API server is what its golden manifest says, field by field: tests/golden/README.md."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest_asyncio
import yaml
from clusters import clear
from goldens import compared, here
from jobs import Place
from operators import operator_settings, running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import PVC
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.volumes import PROVISIONER

JOBS = sorted((Path(__file__).parents[1] / "golden" / "jobs").glob("*.yaml"))

CLUSTER = f"""
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: train}}
value: 1000
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: shared-files}}
provisioner: {PROVISIONER}
"""
MY_CODE = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "my-code"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def namespaces(
    control_plane: ControlPlane, admin: Client, kubelet: ScriptedKubelet
) -> AsyncGenerator[dict[str, str]]:
    """A namespace for each golden manifest, by its name, with what the manifests name and do not define."""
    names = {path.stem: fresh_name(path.stem) for path in JOBS}

    def works_here(pod: Pod) -> bool:
        return pod.metadata.namespace in names.values() and pod.metadata.labels.get("torchrun.ai/role") == "worker"

    before = kubelet.script
    kubelet.script = before.when(works_here, Play(run_s=None))
    await control_plane.kubectl("apply", "-f-", input=CLUSTER)

    async def prepare(name: str) -> None:
        await create_namespace(admin, name)
        await admin.create(PVC, MY_CODE, name)

    async with anyio.create_task_group() as tasks:
        for name in names.values():
            tasks.start_soon(prepare, name)
    yield names
    for name in names.values():
        await clear(admin, name)
    await control_plane.kubectl("delete", "--wait=false", "-f-", input=CLUSTER)
    kubelet.script = before


async def test_the_server_holds_what_the_golden_manifests_say(
    namespaces: dict[str, str], control_plane: ControlPlane, admin: Client, operator_account: Connection
) -> None:
    settings = replace(operator_settings(), operator=OperatorSettings(image="torchctl:test"))
    async with running_operator(operator_account, settings=settings):
        for path in JOBS:
            queue, job, *_ = path.read_text().split("\n---\n")
            inputs = f"{queue}\n---\n{job}".replace("namespace: team", f"namespace: {namespaces[path.stem]}")
            await control_plane.kubectl("apply", "-f-", input=inputs)
        for path in JOBS:
            place = Place(admin, namespaces[path.stem])
            uid = (await admin.get(TORCHRUN_JOB, "demo", place.namespace)).metadata.uid
            expected = here([*yaml.safe_load_all(path.read_text())][2:], uid, place.namespace)

            async def holds(place: Place = place, expected: list[dict[str, Any]] = expected) -> bool:
                return not await compared(place, expected)

            with suppress(AssertionError):  # the differences say more than that there are some
                await until(holds)
            assert await compared(place, expected) == [], path.stem
