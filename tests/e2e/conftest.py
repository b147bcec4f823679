"""One control plane and one real node for the whole run."""

import os
import shutil
from collections.abc import AsyncGenerator

import anyio.to_thread
import pytest
import pytest_asyncio

from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.node import LocalNode, Network
from torchctl.testing.node.training import IMAGE, ensure_image


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # The first run of all downloads and builds; the fixtures' time counts as the first test's.
        item.add_marker(pytest.mark.timeout(1800))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node() -> AsyncGenerator[LocalNode]:
    """A Ready node, its control plane in `node.control_plane`."""
    if os.geteuid() != 0:
        pytest.skip("a real node needs root")
    if not shutil.which("containerd"):
        pytest.fail("containerd is missing: run hack/node/install.sh")
    archive = await anyio.to_thread.run_sync(ensure_image)
    network = Network.free()
    async with (
        ControlPlane(options=network.control_plane_options()) as cluster,
        LocalNode(cluster, network, sandbox_image=IMAGE, images=[archive]) as node,
    ):
        yield node
