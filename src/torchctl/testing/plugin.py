"""The pytest plugin: fixtures for a control plane and its namespaces.

It asks for pytest-asyncio; without it, it offers nothing and is in nobody's way.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

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
