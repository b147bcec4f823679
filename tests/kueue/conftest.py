"""A control plane with Kueue's own manager and webhooks, and the operator under its own account."""

import os
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from gangfixtures import account, cluster, nodes, place, queue
from kueueobjects import PRIORITY_CLASS, Quota, a_priority_class, an_owner
from kueueprograms import KUEUE_BIN, MISSING, Kueue, running_kueue

from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet

__all__ = ["account", "cluster", "nodes", "place", "queue"]


@pytest.fixture(scope="session")
def built() -> None:
    """Kueue's manager is there, or nobody said where it is."""
    if KUEUE_BIN not in os.environ:
        pytest.skip(MISSING)
    assert not MISSING


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def programs(
    account: Connection, control_plane: ControlPlane, admin: Client, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Kueue]:
    """Kueue's manager and its webhooks, and a priority above the default."""
    async with running_kueue(control_plane, tmp_path_factory.mktemp("kueue")) as kueue:
        await admin.create(PRIORITY_CLASS, a_priority_class())
        yield kueue


@pytest_asyncio.fixture(loop_scope="session")
async def quota(
    programs: Kueue, nodes: ScriptedKubelet, admin: Client, control_plane: ControlPlane, namespace: str
) -> AsyncGenerator[Quota]:
    """Sixteen GPUs of a ClusterQueue of the test's own, behind the LocalQueue `train` of its namespace."""
    async with connect(control_plane.connection(), field_manager="torchctl-create") as creator:
        here = Quota(admin, creator, namespace, await an_owner(admin, namespace))
        await here.create(gpus=16)
        yield here
        await here.clear()
