"""A control plane on which Volcano's own programs place pods, and the operator under its own account."""

import os
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
import yaml
from clusters import install
from gangcluster import ENDLESS, URGENT, clear, node
from jobs import Place
from operators import background_operator
from volcanoprograms import MISSING, VOLCANO_BIN, running_volcano

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import fresh_name


@pytest.fixture(scope="session")
def built() -> None:
    """Volcano's programs are there, or nobody said where they are."""
    if VOLCANO_BIN not in os.environ:
        pytest.skip(MISSING)
    assert not MISSING


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def account(built: None, control_plane: ControlPlane) -> Connection:
    """The operator's service account."""
    return await install(control_plane)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def volcano(
    account: Connection, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[None]:
    """Scheduler and controllers, and a PriorityClass above the default."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 90}
    await control_plane.kubectl("apply", "-f-", input=yaml.safe_dump(body))
    async with running_volcano(control_plane, tmp_path_factory.mktemp("volcano")):
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(volcano: None, admin: Client, account: Connection) -> AsyncGenerator[ScriptedKubelet]:
    """The operator, and two nodes of eight GPUs."""
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
    """A name that no other Queue of Volcano's has: they are cluster-scoped."""
    return fresh_name("train")
