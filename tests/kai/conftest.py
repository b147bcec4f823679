"""A control plane on which KAI-Scheduler's own programs place pods, and the operator under its own account."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from gangcluster import FEW_RIGHTS, URGENT
from gangfixtures import account, cluster, nodes, place, queue
from kaiprograms import KAI_BIN, MISSING, Kai, running_kai

from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane

__all__ = ["account", "cluster", "nodes", "place", "queue"]

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
async def programs(account: Connection, control_plane: ControlPlane) -> AsyncGenerator[Kai]:
    """Scheduler, binder and the controllers of queues and PodGroups; a podgrouper is for a test to choose."""
    for name, value in PRIORITIES.items():
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await control_plane.kubectl("apply", "-f-", input=yaml.safe_dump(body | {"value": value}))
    await control_plane.kubectl("apply", "-f", str(RIGHTS))
    async with running_kai(control_plane) as kai:
        yield kai


@pytest_asyncio.fixture(loop_scope="session")
async def podgrouper(
    programs: Kai, control_plane: ControlPlane, request: pytest.FixtureRequest
) -> AsyncGenerator[None]:
    """KAI's podgrouper: it may read everything, or (`FEW_RIGHTS`) Jobs and not TorchrunJobs, as KAI installs it."""
    few = getattr(request, "param", "") == FEW_RIGHTS
    theirs = await control_plane.service_account_kubeconfig("kube-system", "kai-podgrouper") if few else None
    with programs.podgrouper(theirs or control_plane.admin_kubeconfig):
        yield
