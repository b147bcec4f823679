"""A reconciler from another package is found by its entry point and works on the real control plane."""

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from torchctl.cli.run import installed_setups
from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import Kind
from torchctl.runtime.manager import Manager, Setup
from torchctl.runtime.settings import RuntimeSettings, ServerSettings
from torchctl.testing.namespaces import NAMESPACE
from torchctl.testing.waiting import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "reconciler"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for sys.path with the example as pip installs it."""
    # A copy, so that a build leaves nothing in the tree.
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "reconciler")
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", f"--target={target}", source], check=True)
    return target


@pytest.fixture
def setup(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    monkeypatch.syspath_prepend(str(installed))
    (setup,) = installed_setups()
    return setup


@asynccontextmanager
async def running(client: Client, setup: Setup) -> AsyncIterator[None]:
    nowhere = ServerSettings(metrics_port=None, health_port=None)
    manager, stop = Manager(client, settings=RuntimeSettings(server=nowhere)), anyio.Event()
    setup(manager)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(manager.run, stop)
        yield
        stop.set()


async def test_the_team_card_follows_the_label(admin: Client, namespace: str, setup: Setup) -> None:
    import team_card  # type: ignore[import-not-found]  # on sys.path because of the fixture

    card: Kind[Any] = team_card.CONFIG_MAP

    def says(team: str) -> Callable[[Any], bool]:
        return lambda found: found is not None and found.data == {"team": team}

    async def label(team: str | None) -> None:
        await admin.merge_patch(NAMESPACE, namespace, {"metadata": {"labels": {"team": team}}})

    async with running(admin, setup):
        await label("vision")
        await wait_for(admin, card, "team-card", namespace, until=says("vision"))
        await label("speech")
        await wait_for(admin, card, "team-card", namespace, until=says("speech"))
        await admin.merge_patch(card, "team-card", {"data": {"team": "mine!"}}, namespace=namespace)
        await wait_for(admin, card, "team-card", namespace, until=says("speech"))
        await label(None)
        await wait_for(admin, card, "team-card", namespace, until=lambda found: found is None)
