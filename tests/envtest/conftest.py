"""What tests on a real control plane share: our kinds and KAI's, nodes that follow a script, the operator's account."""

from collections.abc import AsyncGenerator

import pytest_asyncio
from clusters import install, install_kai

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def operator_account(control_plane: ControlPlane) -> Connection:
    """The service account that config/ gives the operator, and all that it needs."""
    return await install(control_plane)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kubelet(control_plane: ControlPlane, admin: Client) -> AsyncGenerator[ScriptedKubelet]:
    """All nodes, played by the default script; pods of KAI's are placed by gangs."""
    await install_kai(control_plane)
    async with ScriptedKubelet(admin) as nodes:
        yield nodes


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def transport(control_plane: ControlPlane) -> AsyncGenerator[AiohttpTransport]:
    """Raw requests as admin, for what is compared byte by byte."""
    async with AiohttpTransport(control_plane.connection()) as carrier:
        yield carrier
