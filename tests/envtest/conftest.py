"""What tests on a real control plane share: our kinds and KAI's, nodes that follow a script, the operator's account."""

from collections.abc import AsyncGenerator, Iterator

import pytest
import pytest_asyncio
from clusters import WITHOUT_ENDPOINTS, clear, install, install_kai, install_volcano
from jobs import Place
from operators import background_operator
from rights import asked, granted, used

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.assets import Settings
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import NodeSpec, ScriptedKubelet, default_nodes
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.programs import minor_numbers
from torchctl.testing.proxy import FaultProxy

NODES = 16
H100 = [
    NodeSpec(name=f"h100-{index}", gpu_product="h100-80gb", labels={"gpu.nvidia.com/class": "H100"})
    for index in range(4)
]
"""Nodes with the labels that the first documentation selects."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ControlPlane]:
    """One for all tests of a process, except those that start their own."""
    async with ControlPlane(directory=tmp_path_factory.mktemp("control-plane"), options=WITHOUT_ENDPOINTS) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def admin(control_plane: ControlPlane) -> AsyncGenerator[Client]:
    """A client that may do everything.

    A fixture of the whole run is made once. So the plugin's would be a client of another folder's control plane, if
    that folder's tests run first.
    """
    async with control_plane.client() as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def operator_account(control_plane: ControlPlane) -> AsyncGenerator[Connection]:
    """The service account that config/ gives the operator, and all that it needs. In the end it has used no more."""
    yield await install(control_plane)
    assert used(asked(control_plane.audit_log)) - granted() - granted("coordinator") == set()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kubelet(control_plane: ControlPlane, admin: Client) -> AsyncGenerator[ScriptedKubelet]:
    """All nodes, played by the default script; pods of KAI's are placed by gangs, those of Volcano's one by one."""
    await install_kai(control_plane)
    await install_volcano(control_plane)
    async with ScriptedKubelet(admin, nodes=(*default_nodes(NODES), *H100)) as nodes:
        yield nodes


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(request: pytest.FixtureRequest, operator_account: Connection, admin: Client) -> AsyncGenerator[Place]:
    """A namespace of the module, with an operator at work in it. A module that needs queues overrides the fixture."""
    namespace = fresh_name(request.path.stem.removeprefix("test_").replace("_", "-"))
    await create_namespace(admin, namespace)
    async with background_operator(operator_account, namespace):
        yield Place(admin, namespace)
    await clear(admin, namespace)


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(admin: Client, request: pytest.FixtureRequest) -> AsyncGenerator[str]:
    """The name of a fresh namespace; in the end its jobs and pods are deleted."""
    name = fresh_name(request.node.name.removeprefix("test_"))
    await create_namespace(admin, name)
    yield name
    await clear(admin, name)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def transport(control_plane: ControlPlane) -> AsyncGenerator[AiohttpTransport]:
    """Raw requests as admin, for what is compared byte by byte."""
    async with AiohttpTransport(control_plane.connection()) as carrier:
        yield carrier


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(control_plane: ControlPlane) -> AsyncGenerator[FaultProxy]:
    """Between a client and the API server."""
    async with FaultProxy(control_plane.connection()) as proxy:
        yield proxy


def too_old(since: str, why: str) -> pytest.MarkDecorator:
    """Skips on a Kubernetes that was asked for by TORCHCTL_KUBERNETES_VERSION and is older than `since`."""
    asked = Settings.from_environment().kubernetes
    is_older = bool(asked) and minor_numbers(asked) < minor_numbers(since)
    return pytest.mark.skipif(is_older, reason=f"Kubernetes {asked} is older than {since}: {why}")


@pytest.fixture
def own_script(kubelet: ScriptedKubelet) -> Iterator[None]:
    """What a test writes into the script is forgotten after it."""
    before = kubelet.script
    yield
    kubelet.script = before


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what the Kubernetes under test is too old for."""
    for item in items:
        for marker in item.iter_markers("kubernetes"):
            item.add_marker(too_old(*marker.args))
