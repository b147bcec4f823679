"""The first documentation's own line on the real node: a directory is submitted, and real torchrun trains on it."""

import shutil
from pathlib import Path

import pytest
from jobs import Place
from plugin import run
from trainings import NAMESPACE

from torchctl.testing.node import LocalNode

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp.py"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A project with a script, and with a secret that stays where it is."""
    project = tmp_path / "my-training"
    project.mkdir()
    shutil.copy(EXAMPLE, project / "train.py")
    (project / ".env").write_text("KEY=secret\n")
    return project


@pytest.fixture
def kubeconfig(operator: LocalNode) -> Path:
    return operator.control_plane.kubeconfig("person", ["system:masters"])


async def test_directory_is_submitted_and_trains(place: Place, kubeconfig: Path, directory: Path) -> None:
    line = ["submit", "--queue", "queue", "--nodes", "2", "python train.py --steps 20", "--follow", "-n", NAMESPACE]
    ended = await run(*line, "--name", "mine", kubeconfig=kubeconfig, directory=directory, timeout_s=180)
    assert ended.status == 0, ended.err
    assert "1 files" in ended.err
    assert "left out: 1 secret" in ended.err
    assert "mine is Running" in ended.err
    assert "[rank 0] " in ended.out
    assert "[rank 1] " in ended.out
    assert "world size 2" in ended.out


async def test_failed_training_is_the_exit_status(place: Place, kubeconfig: Path, directory: Path) -> None:
    (directory / "train.py").write_text("raise SystemExit(3)\n")
    line = ["submit", "--queue", "queue", "--gpus", "0", "python train.py", "--follow", "-n", NAMESPACE]
    manifest = directory / "job.yaml"
    manifest.write_text(
        "apiVersion: torchrun.ai/v1alpha1\nkind: TorchrunJob\nmetadata: {name: fails}\n"
        "spec: {runPolicy: {maxRestarts: 0}}\n"
    )
    ended = await run(*line, "-f", "job.yaml", kubeconfig=kubeconfig, directory=directory, timeout_s=120)
    assert ended.status == 1, ended.err
    assert "TorchrunJob fails in namespace training has failed" in ended.err
