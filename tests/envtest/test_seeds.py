"""The manifests of the first documentation, which users have in their files, run to completion unchanged.

TORCHCTL_SEEDS names the directory with that documentation; without it there is nothing to prove. What each job becomes
is what its golden manifest says, field by field: tests/golden/README.md.
"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from goldens import applied, compared, here, is_regenerated, written
from jobs import Place, a_queue
from operators import running_operator
from seeds import SEEDS, manifests
from snapshots import Snapshot, differences

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import KAI_PODGROUP, KAI_QUEUE, POD
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.nodekinds import Pod
from torchctl.testing.proxy import FaultProxy

GOLDEN = Path(__file__).parents[1] / "golden" / "seeds"

pytestmark = pytest.mark.skipif(not SEEDS, reason="TORCHCTL_SEEDS names no directory with the first documentation")

NAMED_AND_NOT_DEFINED = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: gpu-priority}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: production-priority}
value: 2000
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: default}
spec:
  resources: &all
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
"""
"""PriorityClasses, and the parent of a KAI queue. TorchrunQueue gpu-queue is made by the test."""


@pytest_asyncio.fixture(loop_scope="session")
async def place(
    control_plane: ControlPlane, admin: Client, namespace: str, kubelet: ScriptedKubelet
) -> AsyncGenerator[Place]:
    """Where workers run until they are told to end."""

    def works_here(pod: Pod) -> bool:
        return pod.metadata.namespace == namespace and pod.metadata.labels.get("torchrun.ai/role") == "worker"

    before = kubelet.script
    kubelet.script = before.when(works_here, Play(run_s=None))
    await control_plane.kubectl("apply", "-f-", input=NAMED_AND_NOT_DEFINED)
    yield Place(admin, namespace)
    await control_plane.kubectl("delete", "--wait=false", "-f-", input=NAMED_AND_NOT_DEFINED)
    kubelet.script = before


async def submit(control_plane: ControlPlane, namespace: str, blocks: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Applies the blocks as they are; returns the objects in them by kind."""
    found: dict[str, list[dict[str, Any]]] = {"TorchrunQueue": [], "TorchrunJob": []}
    for block in blocks:
        await control_plane.kubectl("apply", f"--namespace={namespace}", "-f-", input=block)
        for document in yaml.safe_load_all(block):
            found[document["kind"]].append(document)
    return found


async def becomes_its_golden_manifest(place: Place, proxy: FaultProxy, name: str) -> None:
    """A running job's children: those that the golden manifest has, and no others; their fields, and no others.

    The server adds fields of its own, and has all of these.
    """
    await place.reaches(Phase.RUNNING, name, timeout_s=60)
    uid = (await place.admin.get(TORCHRUN_JOB, name, place.namespace)).metadata.uid
    path, children = GOLDEN / f"{name}.yaml", applied(proxy.writes, uid, place.namespace)
    if is_regenerated():
        path.write_text(written(children))
    golden = [*yaml.safe_load_all(path.read_text())]
    found = differences(by_name(golden), by_name(children))
    assert not found, "\n".join(found)
    assert await compared(place, here(golden, uid, place.namespace)) == []


def by_name(children: list[dict[str, Any]]) -> Snapshot:
    return {f"{child['kind']}/{child['metadata']['name']}": child for child in children}


async def end_workers(place: Place, kubelet: ScriptedKubelet) -> None:
    for pod in await place.admin.list(POD, namespace=place.namespace, labels="torchrun.ai/role=worker"):
        kubelet.end(place.namespace, pod.metadata.name)


async def test_what_the_first_documentation_shows_runs_to_succeeded(
    control_plane: ControlPlane,
    place: Place,
    proxy: FaultProxy,
    kubelet: ScriptedKubelet,
    operator_account: Connection,
) -> None:
    async with running_operator(proxy.connection(operator_account), place.namespace):
        found = await submit(control_plane, place.namespace, manifests("000"))
        assert [job["metadata"]["name"] for job in found["TorchrunJob"]] == ["training-job", "vit-training"]
        for queue in found["TorchrunQueue"]:
            await place.condition("Ready", "Ready", queue["metadata"]["name"], kind=TORCHRUN_QUEUE)
        for name in ("training-job", "vit-training"):
            await becomes_its_golden_manifest(place, proxy, name)
        await end_workers(place, kubelet)
        training = await place.reaches(Phase.SUCCEEDED, "training-job", timeout_s=60)
        vit = await place.reaches(Phase.SUCCEEDED, "vit-training", timeout_s=60)
        assert (training.status.nodes.desired, training.status.gpus) == (2, 16)
        assert (vit.status.nodes.desired, vit.status.gpus) == (4, 32)
        assert training.status.master_endpoint == "etcd.etcd-system.svc:2379"
        groups = await place.admin.list(KAI_PODGROUP, namespace=place.namespace)
        assert sorted((group.spec["queue"], group.spec["minMember"]) for group in groups) == [
            ("gpu-h100-queue", 4),
            ("gpu-training", 2),
        ]
        assert (await place.admin.get(KAI_QUEUE, "gpu-training")).spec["parentQueue"] == "default"
        # The selectors that the documentation tells people to use.
        by_label = await place.admin.list(POD, namespace=place.namespace, labels="torchrun-job-name=vit-training")
        assert len([pod for pod in by_label if pod.metadata.labels["torchrun.ai/role"] == "worker"]) == 4
        for queue in found["TorchrunQueue"]:
            await place.admin.delete(TORCHRUN_QUEUE, queue["metadata"]["name"], namespace=place.namespace)
        await place.gone(KAI_QUEUE, "gpu-training")
        await place.gone(KAI_QUEUE, "gpu-h100-queue")


async def test_what_the_later_documentation_shows_runs_to_succeeded(
    control_plane: ControlPlane,
    place: Place,
    proxy: FaultProxy,
    kubelet: ScriptedKubelet,
    operator_account: Connection,
) -> None:
    queue = a_queue(place.namespace, "gpu-queue", nodeResources={"gpus": 8, "cpus": 16, "memory": "64Gi"})
    async with running_operator(proxy.connection(operator_account), place.namespace):
        await submit(control_plane, place.namespace, [yaml.safe_dump(queue), *manifests("004")])
        await becomes_its_golden_manifest(place, proxy, "multi-node-training")
        await end_workers(place, kubelet)
        job = await place.reaches(Phase.SUCCEEDED, "multi-node-training", timeout_s=60)
    assert (job.status.nodes.desired, job.status.gpus, job.status.workers.succeeded) == (4, 32, 4)
    assert job.status.master_endpoint == (
        f"multi-node-training-0.multi-node-training.{place.namespace}.svc.cluster.local:29500"
    )
