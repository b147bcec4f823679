"""A control plane on which KAI-Scheduler's own programs place pods, and the operator under its own account."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from clusters import install
from gangcluster import ENDLESS, FEW_RIGHTS, URGENT, clear, node
from jobs import Place
from kaiprograms import KAI_BIN, MISSING, Kai, running_kai
from operators import background_operator

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import fresh_name

PRIORITIES = {"train": 50, URGENT: 90}
"""KAI's default, and one above it; at 100 and more KAI lets nobody have more than the queue's quota."""

RIGHTS = Path(__file__).parent / "podgrouper.yaml"


@pytest.fixture(scope="session")
def built() -> None:
    """KAI's programs are there, or nobody said where they are."""
    if KAI_BIN not in os.environ:
        pytest.skip(MISSING)
    assert not MISSING


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def account(built: None, control_plane: ControlPlane) -> Connection:
    """The operator's service account."""
    return await install(control_plane)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kai(account: Connection, control_plane: ControlPlane) -> AsyncGenerator[Kai]:
    """Scheduler, binder and the controllers of queues and PodGroups; a podgrouper is for a test to choose."""
    for name, value in PRIORITIES.items():
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await control_plane.kubectl("apply", "-f-", input=yaml.safe_dump(body | {"value": value}))
    await control_plane.kubectl("apply", "-f", str(RIGHTS))
    async with running_kai(control_plane) as programs:
        yield programs


@pytest_asyncio.fixture(loop_scope="session")
async def podgrouper(kai: Kai, control_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncGenerator[None]:
    """KAI's podgrouper: it may read everything, or (`FEW_RIGHTS`) Jobs and not TorchrunJobs, as KAI installs it."""
    few = getattr(request, "param", "") == FEW_RIGHTS
    theirs = await control_plane.service_account_kubeconfig("kube-system", "kai-podgrouper") if few else None
    with kai.podgrouper(theirs or control_plane.admin_kubeconfig):
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(kai: Kai, admin: Client, account: Connection) -> AsyncGenerator[ScriptedKubelet]:
    """The operator, and two nodes of eight GPUs, each in a rack of its own."""
    nodes = (node("node-0", "a"), node("node-1", "b"))
    async with (
        ScriptedKubelet(admin, nodes=nodes, script=ENDLESS, binds_gangs=False) as kubelet,
        background_operator(account),
    ):
        yield kubelet


@pytest_asyncio.fixture(loop_scope="session")
async def place(cluster: ScriptedKubelet, admin: Client, namespace: str) -> AsyncGenerator[Place]:
    """A namespace; when it is left, all GPUs are free again."""
    here = Place(admin, namespace)
    yield here
    await clear(here)


@pytest.fixture
def queue() -> str:
    """A name that no other queue of KAI's has: they are cluster-scoped."""
    return fresh_name("gpus")
