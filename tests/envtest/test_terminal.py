"""What a person at a real terminal sees: a status that lives, Ctrl-C, and completed words."""

import shutil
import time
from pathlib import Path

import pytest
from errands import SyncPods, report_of
from forks import Forks
from gates import gate
from jobs import Place, become
from operators import running_operator
from terminals import TMUX, terminal
from waiting import until

from torchctl.api.kube import POD, Pod
from torchctl.api.labels import ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Key
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.script import inside

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


@pytest.fixture
async def project(tmp_path: Path) -> Path:
    """Somebody's directory."""
    made = tmp_path / "project"
    made.mkdir()
    (made / "train.py").write_text("print(1)\n")
    return made


async def test_followed_submit_is_left_and_taken_up_again(
    place: Place,
    control_plane: ControlPlane,
    kubelet: ScriptedKubelet,
    starts: Forks,
    operator_account: Connection,
    project: Path,
    tmp_path: Path,
    own_script: None,
) -> None:
    """Ctrl-C while the code is sent, and while the job runs: each time it stays, and the way back is a line."""
    said, namespace = await report_of(project), place.namespace
    syncs = Play(run_s=None, messages={"fetch": said})
    kubelet.script = kubelet.script.when(inside(namespace), lambda pod: syncs)
    await place.queue()
    line = f"kubectl-torchrun submit --queue queue --nodes 1 --name mine --follow 'python train.py' -n {namespace}"
    async with (
        gate() as guard,
        running_operator(operator_account, namespace),
        terminal(KUBECONFIG=str(control_plane.admin_kubeconfig), XDG_CACHE_HOME=str(tmp_path)) as shell,
    ):
        await shell.enter(f"cd {project}; clear")
        await shell.enter(line)
        await shell.shows("1 file", "mine created", "waiting: ")
        await shell.press("C-c")
        await shell.shows("The job mine stays. The same line with --name mine goes on with it.")
        await shell.enter("clear")
        async with SyncPods(place, kubelet, starts, tmp_path, guard).played():
            await shell.enter(line)
            await shell.shows("mine is there already: going on with it", "mine is Running")
        worker = await the_worker(place)
        log = kubelet.logs[Key(namespace, worker.metadata.name)]
        log.write("epoch 1\n", time.time_ns())
        await shell.shows("[rank 0] epoch 1")
        await shell.press("C-c")
        await shell.shows(f"Come back with: kubectl torchrun logs mine -n {namespace} -f")
        await shell.enter("echo status $?")
        await shell.shows("status 130")
        await shell.enter(f"clear; kubectl-torchrun logs mine -n {namespace} -f")
        await shell.shows("[rank 0] epoch 1")
        log.write("epoch 2\n", time.time_ns())
        screen = await shell.shows("[rank 0] epoch 1\n[rank 0] epoch 2")
        assert "Traceback" not in screen
        assert (await the_worker(place)).metadata.uid == worker.metadata.uid
        log.end()
        kubelet.end(namespace, worker.metadata.name)
        await place.reaches(Phase.SUCCEEDED, "mine")


async def the_worker(place: Place) -> Pod:
    (pod,) = await place.admin.list(POD, namespace=place.namespace, labels=f"{ROLE}={ROLE_WORKER}")
    return pod


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
async def test_shells_complete_verbs_and_names(place: Place, kubeconfig: str, tmp_path: Path, name: str) -> None:
    """Verbs, and names of jobs and queues from the cluster."""
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name}: apt-get install {name}")
    await place.queue("h100-training")
    await place.job("bert-large", jobQueue="h100-training")
    begins = {
        "bash": ("bash --norc --noprofile", "source <(torchctl completion bash)"),
        "zsh": ("zsh -f", "autoload -Uz compinit; compinit -u; source <(torchctl completion zsh)"),
        "fish": ("fish --no-config", "torchctl completion fish | source"),
    }[name]
    async with terminal(KUBECONFIG=kubeconfig, HOME=str(tmp_path)) as shell:
        await shell.enter(begins[0])
        await shell.enter(f"{begins[1]}; echo sour''ced")
        await shell.shows("\nsourced")

        async def completes(typed: str, whole: str) -> None:
            """A slow machine may get no names at first."""
            await shell.enter("clear")
            await shell.type(typed)

            async def completed() -> bool:
                await shell.press("Tab")
                return whole in await shell.screen()

            await until(completed)
            await shell.press("C-c")

        await completes("torchctl comple", "torchctl completion")
        await completes(f"torchctl -n {place.namespace} status bert", "status bert-large")
        await completes(f"torchctl -n {place.namespace} submit --queue h100", "--queue h100-training")
