"""What tests on a real control plane share: our kinds, nodes that follow a script, the operator's account."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet

CONFIG = Path(__file__).resolve().parents[2] / "config"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def operator_account(control_plane: ControlPlane) -> Connection:
    """CRDs and rights from config/, and the service account that they are given to."""
    await control_plane.kubectl("apply", "-f", str(CONFIG / "manager" / "namespace.yaml"))
    for part in ("crd", "rbac"):
        await control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(CONFIG / part))
    await control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    return await control_plane.service_account_connection("torchctl-system", "torchctl")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kubelet(control_plane: ControlPlane, admin: Client) -> AsyncGenerator[ScriptedKubelet]:
    """All nodes, played by the default script."""
    async with ScriptedKubelet(admin) as nodes:
        yield nodes


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def transport(control_plane: ControlPlane) -> AsyncGenerator[AiohttpTransport]:
    """Raw requests as admin, for what is compared byte by byte."""
    async with AiohttpTransport(control_plane.connection()) as carrier:
        yield carrier
