"""Fixtures that tests with the own programs of gang schedulers share.

A conftest imports them and defines two more: `built` skips if the programs are not there, `programs` runs them for the
session.
"""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from clusters import install
from gangcluster import ENDLESS, clear, node
from jobs import Place
from operators import background_operator

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import fresh_name

__all__ = ["account", "cluster", "nodes", "place", "queue"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def account(built: None, control_plane: ControlPlane) -> Connection:
    """The operator's service account."""
    return await install(control_plane)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nodes(programs: object, admin: Client) -> AsyncGenerator[ScriptedKubelet]:
    """Two nodes of eight GPUs, each in a rack of its own."""
    both = (node("node-0", "a"), node("node-1", "b"))
    async with ScriptedKubelet(admin, nodes=both, script=ENDLESS, binds_gangs=False) as kubelet:
        yield kubelet


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(nodes: ScriptedKubelet, account: Connection) -> AsyncGenerator[ScriptedKubelet]:
    """The nodes, and the operator."""
    async with background_operator(account):
        yield nodes


@pytest_asyncio.fixture(loop_scope="session")
async def place(cluster: ScriptedKubelet, admin: Client, namespace: str) -> AsyncGenerator[Place]:
    """A namespace; when it is left, all GPUs are free again."""
    here = Place(admin, namespace)
    yield here
    await clear(here)


@pytest.fixture
def queue() -> str:
    """A name that no other queue has: those of gang schedulers are cluster-scoped."""
    return fresh_name("gpus")
