"""The pytest plugin: fixtures for a control plane and its namespaces.

It requires pytest-asyncio; without it, there are no fixtures and no errors. Imports are inside the fixtures, because
every pytest run of an environment loads this file.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from torchctl.runtime.client.client import Client
    from torchctl.testing.controlplane import ControlPlane

__all__: list[str] = []

if find_spec("pytest_asyncio"):
    import pytest_asyncio

    @pytest_asyncio.fixture(scope="session", loop_scope="session")
    async def control_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ControlPlane]:
        """One real control plane for the whole run; its logs stay among pytest's temporary directories."""
        from torchctl.testing.controlplane import ControlPlane

        async with ControlPlane(directory=tmp_path_factory.mktemp("control-plane")) as cluster:
            yield cluster

    @pytest_asyncio.fixture(scope="session", loop_scope="session")
    async def admin(control_plane: ControlPlane) -> AsyncGenerator[Client]:
        """A client that may do everything."""
        async with control_plane.client() as client:
            yield client

    @pytest_asyncio.fixture(loop_scope="session")
    async def namespace(admin: Client, request: pytest.FixtureRequest) -> AsyncGenerator[str]:
        """The name of a fresh namespace, in which pods can be created; it is deleted after the test, unwaited."""
        from torchctl.runtime.client.errors import NotFound
        from torchctl.testing.namespaces import NAMESPACE, create_namespace, fresh_name

        name = fresh_name(request.node.name.removeprefix("test_"))
        await create_namespace(admin, name)
        yield name
        with suppress(NotFound):
            await admin.delete(NAMESPACE, name)
