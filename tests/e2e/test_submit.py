"""The first documentation's own line on the real node: a directory is submitted, and real torchrun trains on it."""

import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from jobs import Place
from plugin import run
from trainings import NAMESPACE, log
from waiting import until

from torchctl.api.kube import POD
from torchctl.api.labels import JOB_NAME, ROLE, ROLE_WORKER
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
    assert "1 file" in ended.err
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
        "apiVersion: torchrun.ai/v1alpha1\nkind: TorchrunJob\nmetadata: {name: exits-3}\n"
        "spec: {runPolicy: {maxRestarts: 0}}\n"
    )
    ended = await run(*line, "-f", "job.yaml", kubeconfig=kubeconfig, directory=directory, timeout_s=120)
    assert ended.status == 1, ended.err
    assert "TorchrunJob exits-3 in namespace training has failed" in ended.err


async def test_changed_directory_is_taken_up_by_the_same_pods(
    operator: LocalNode, place: Place, kubeconfig: Path, directory: Path
) -> None:
    program = "import os, time\nprint('text {}', 'rank', os.environ['RANK'], flush=True)\ntime.sleep(600)\n"
    (directory / "train.py").write_text(program.format("one"))
    line = ["submit", "--queue", "queue", "--nodes", "2", "--hot-reload", "python train.py", "--name", "reloads"]
    person = partial(run, "-n", NAMESPACE, kubeconfig=kubeconfig, directory=directory)
    submitted = await person(*line, timeout_s=120)
    assert submitted.status == 0, submitted.err
    await place.in_attempt(0, "reloads", timeout_s=120)
    await until(partial(all_say, operator, "one"), timeout_s=60)
    before = await workers(place, "reloads")
    (directory / "train.py").write_text(program.format("two"))
    synced = await person("sync", "reloads", timeout_s=150)
    assert synced.status == 0, synced.err
    assert "2 workers run it" in synced.err
    await until(partial(all_say, operator, "two"), timeout_s=60)
    assert await workers(place, "reloads") == before
    back = await person("rollback", "reloads", timeout_s=150)
    assert back.status == 0, back.err
    await until(partial(all_say, operator, "one"), timeout_s=60)
    assert await workers(place, "reloads") == before
    again = await person("sync", "reloads", timeout_s=60)
    assert again.status == 0, again.err
    deleted = await person("delete", "reloads")
    assert "reloads deleted" in deleted.out


async def all_say(operator: LocalNode, word: str) -> bool:
    """Whether the newest program of both workers is the one that prints this text."""
    logs = [await log(operator, "reloads", index=index) for index in range(2)]
    return all(re.findall("text ([a-z]+)", text)[-1:] == [word] for text in logs)


async def workers(place: Place, job: str) -> set[str]:
    """The uids of a job's worker pods."""
    pods = await place.admin.list(POD, namespace=NAMESPACE, labels=f"{JOB_NAME}={job},{ROLE}={ROLE_WORKER}")
    return {pod.metadata.uid for pod in pods}
