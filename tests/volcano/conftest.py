"""A control plane on which Volcano's own programs place pods, and the operator under its own account."""

import os
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
import yaml
from gangcluster import URGENT
from gangfixtures import account, cluster, nodes, place, queue
from volcanoprograms import MISSING, VOLCANO_BIN, running_volcano

from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane

__all__ = ["account", "cluster", "nodes", "place", "queue"]


@pytest.fixture(scope="session")
def built() -> None:
    """Volcano's programs are there, or nobody said where they are."""
    if VOLCANO_BIN not in os.environ:
        pytest.skip(MISSING)
    assert not MISSING


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def programs(
    account: Connection, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[None]:
    """Scheduler and controllers, and a PriorityClass above the default."""
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 90}
    await control_plane.kubectl("apply", "-f-", input=yaml.safe_dump(body))
    async with running_volcano(control_plane, tmp_path_factory.mktemp("volcano")):
        yield
