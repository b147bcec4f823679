"""New code for a job that runs, on the real node: the same pods train on with it, without an incident."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jobs import Place
from plugin import run
from trainings import NAMESPACE, log, submit
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD
from torchctl.api.labels import JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.testing.node import LocalNode

SCRIPT = """\
import sys, time
import torch
import torch.distributed as dist

TEXT, STEPS = "{text}", {steps}
dist.init_process_group("gloo")
step = 0
while step < STEPS:
    dist.all_reduce(total := torch.ones(1))
    step += 1
    if step == 1:
        print(f"first step of {{TEXT}}, rank {{dist.get_rank()}}, world size {{total.item():.0f}}", flush=True)
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
"""
FOR_EVER = 10**9


def write(directory: Path, text: str, steps: int = FOR_EVER) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "train.py").write_text(SCRIPT.format(text=text, steps=steps))


async def workers(place: Place, job: str) -> dict[str, str]:
    """The uids of a job's workers, by name."""
    labels = f"{JOB_NAME}={job},{ROLE}={ROLE_WORKER}"
    found = await place.admin.list(POD, namespace=NAMESPACE, labels=labels)
    return {pod.metadata.name: pod.metadata.uid for pod in found}


async def both_run(node: LocalNode, job: str, text: str) -> bool:
    wanted = f"first step of {text}, rank {{}}, world size 2"
    return all([wanted.format(index) in await log(node, job, index=index) for index in (0, 1)])


async def is_told(place: Place, job: str) -> bool:
    """Whether status says that the workers run what was sent last."""
    there = (await place.admin.get(TORCHRUN_JOB, job, NAMESPACE)).status.workspace
    return there is not None and there.requested == there.revision


@pytest.mark.parametrize("kind", ["hot-reload", "warm-start"])
async def test_same_pods_train_on_with_new_code(kind: str, operator: LocalNode, place: Place, tmp_path: Path) -> None:
    """A second and a third time."""
    code, kubeconfig = tmp_path / "code", operator.control_plane.kubeconfig("person", ["system:masters"])

    async def plugin(*words: str) -> None:
        ended = await run(*words, "-n", NAMESPACE, kubeconfig=kubeconfig, directory=code, timeout_s=180)
        assert ended.status == 0, ended.err

    write(code, "one")
    await plugin("submit", "--queue", "queue", "--nodes", "2", f"--{kind}", "--name", kind, "python train.py")
    await place.reaches(Phase.RUNNING, kind, timeout_s=120)
    await until(lambda: both_run(operator, kind, "one"), timeout_s=180)
    there = await workers(place, kind)
    for text, steps in (("two", FOR_EVER), ("three", 20)):
        write(code, text, steps)
        begun = time.monotonic()
        await plugin("sync", kind)
        synced = time.monotonic()
        await until(partial(both_run, operator, kind, text), timeout_s=120)
        print(f"{kind}, {text}: sync took {synced - begun:.1f} s, first step after {time.monotonic() - begun:.1f} s")
        if steps == FOR_EVER:
            await until(partial(is_told, place, kind))
            assert await workers(place, kind) == there
    job = await place.reaches(Phase.SUCCEEDED, kind, timeout_s=120)
    assert (job.status.attempt, job.status.restarts.total) == (0, 0)


async def test_image_without_python_is_named(place: Place, repository: tuple[str, str]) -> None:
    """A container whose PATH has no python3 is to the runtime as an image that has none."""
    more: dict[str, Any] = {"env": [{"name": "PATH", "value": "/nowhere"}], "runPolicy": {"maxRestarts": 0}}
    await submit(place, "lacking", repository[0], hotReload="Restart", numNodes=1, **more)
    job = await place.reaches(Phase.FAILED, "lacking", timeout_s=180)
    assert job.status.failure is not None
    assert job.status.failure.message.startswith("hotReload needs python3 in the image of trainer, which has none: ")
