"""What the README tells people who train: each line as it stands there, by the plugin as a process of its own."""

import re
import shlex
import sys
from pathlib import Path

import anyio
import pytest
import yaml
from jobs import Place
from operators import running_operator
from plugin import run
from uploads import receiving_pods

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubeconfig import write_kubeconfig
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.script import SYNC_MESSAGE, inside, role

README = (Path(__file__).parents[2] / "README.md").read_text()
SECTION = README[README.index("## Train") : README.index("## Find your way")]
BLOCKS = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", SECTION, re.MULTILINE)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A project."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print(1)\n")
    return project


@pytest.fixture
async def place(admin: Client, kubelet: ScriptedKubelet, own_script: None, namespace: str) -> Place:
    """Where a queue of the README's is, trainings print a line, and sync pods wait for an upload."""
    uploads = Play(run_s=None, messages={"fetch": SYNC_MESSAGE})
    training = Play(run_s=0.5, log="epoch 1\n")

    kubelet.script = kubelet.script.when(inside(namespace), training).when(
        lambda pod: inside(namespace)(pod) and role("sync")(pod), uploads
    )
    here = Place(admin, namespace)
    await here.queue("h100-training", nodeResources={"gpus": 8, "cpus": 1, "memory": "1Gi"})
    return here


@pytest.fixture
def kubeconfig(control_plane: ControlPlane, place: Place, tmp_path: Path) -> Path:
    (admin,) = [entry["user"] for entry in yaml.safe_load(control_plane.admin_kubeconfig.read_text())["users"]]
    path, host, ca = tmp_path / "kubeconfig", control_plane.host, control_plane.ca
    return write_kubeconfig(path, server=host, ca=ca, user=admin, namespace=place.namespace)


async def test_lines_for_people_who_train_do_what_they_say(
    operator_account: Connection,
    place: Place,
    kubelet: ScriptedKubelet,
    kubeconfig: Path,
    directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, program = (block.replace("\n    ", "\n").strip() for block in BLOCKS)
    path, *verbs = lines.splitlines()
    assert path == "export PATH=$PWD/.venv/bin:$PATH"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    said = {}
    async with (
        running_operator(operator_account, place.namespace),
        receiving_pods(place.admin, kubelet, place.namespace, tmp_path / "claims"),
    ):
        for line in verbs:
            kubectl, plugin, verb, *arguments = shlex.split(line)
            assert (kubectl, plugin) == ("kubectl", "torchrun")
            ended = await run(verb, *arguments, kubeconfig=kubeconfig, directory=directory)
            assert ended.status == 0, ended.err
            said[" ".join([verb, *arguments[:-1]])] = ended.out + ended.err
        done = await anyio.run_process([sys.executable, "-c", program], cwd=directory)
    assert "\nh100-training " in said["queues"]
    assert "1 file, 9 bytes" in said["submit --queue h100-training --gpus 8 --name vit"]
    assert "vit Succeeded, 1/1 succeeded" in said["status -w"]
    assert "epoch 1\n" in said["logs -f"]
    assert "No worker of vit has failed" in said["logs --failed"]
    assert said["delete"] == "vit deleted\n"
    assert done.stdout == b""
