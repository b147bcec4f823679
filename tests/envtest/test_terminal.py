"""What a person at a real terminal sees: a status that lives, Ctrl-C, and completed words."""

from pathlib import Path

import pytest
from jobs import Place, become
from terminals import TMUX, terminal
from waiting import until

from torchctl.runtime.client.client import Client
from torchctl.testing.controlplane import ControlPlane

pytestmark = [
    pytest.mark.usefixtures("operator_account"),
    pytest.mark.skipif(TMUX is None, reason="there is no tmux: apt-get install tmux"),
]


@pytest.fixture
def place(admin: Client, namespace: str) -> Place:
    return Place(admin, namespace)


@pytest.fixture
def kubeconfig(control_plane: ControlPlane) -> str:
    return str(control_plane.admin_kubeconfig)


async def test_status_is_redrawn_and_left_by_ctrl_c(place: Place, kubeconfig: str) -> None:
    """Ctrl-C leaves the job alone, says how to come back, and is exit status 130."""
    await place.queue()
    await place.job()
    await become(place, "Queued", Admitted="False")
    async with terminal(KUBECONFIG=kubeconfig) as shell:
        await shell.enter(f"kubectl-torchrun status -w job -n {place.namespace}")
        await shell.shows("Phase:    Queued", "Admitted    False")
        await become(place, "Running", Admitted="True")
        screen = await shell.shows("Phase:    Running", "Admitted    True")
        assert "Queued" not in screen
        await shell.press("C-c")
        await shell.shows(f"The job goes on. Come back with: kubectl torchrun status -w job -n {place.namespace}")
        await shell.enter("echo status $?")
        screen = await shell.shows("status 130")
    assert "Traceback" not in screen
    assert "Abort" not in screen


async def test_a_status_that_lives_ends_with_the_job(place: Place, kubeconfig: str) -> None:
    await place.queue()
    await place.job()
    await become(place, "Running")
    async with terminal(KUBECONFIG=kubeconfig, NO_COLOR="1") as shell:
        await shell.enter(f"torchctl status -w job -n {place.namespace}; echo status $?")
        await shell.shows("Phase:    Running")
        await become(place, "Failed", Failed="True")
        await shell.shows("Phase:    Failed", "has failed", "status 1")


async def test_bash_completes_verbs_and_names_of_jobs(place: Place, kubeconfig: str, tmp_path: Path) -> None:
    await place.queue()
    await place.job("bert-large")
    async with terminal(KUBECONFIG=kubeconfig, HOME=str(tmp_path)) as shell:
        await shell.enter("source <(torchctl completion bash); echo sourced")
        await shell.shows("\nsourced")
        await shell.type(f"torchctl -n {place.namespace} stat")
        await shell.press("Tab")
        await shell.shows(f"-n {place.namespace} status")
        await shell.type("bert")

        async def completed() -> bool:
            await shell.press("Tab")
            return "status bert-large" in await shell.screen()

        await until(completed)  # a slow machine may get no names at first
