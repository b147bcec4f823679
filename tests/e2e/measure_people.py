"""Seconds that people wait on the real node, beside what they would use instead: `make bench-node` prints them.

Nothing here is asserted but that things happen: how long they take is for the reader. It wants a quiet machine.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from bench.upload import plant_large, plant_noise, plant_small
from jobs import Place
from plugin import Ended, interrupted, run
from trainings import NAMESPACE, log
from waiting import until

from torchctl.api.kube import PVC
from torchctl.api.names import UPLOAD_PORT
from torchctl.api.phases import Phase
from torchctl.testing.controlplane import CommandFailed
from torchctl.testing.node import LocalNode
from torchctl.testing.node.leftovers import hierarchies

Person = Callable[..., Awaitable[Ended]]

SCRIPT = """\
import os, time

def since_boot(pid):
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")

boot = time.time() - float(open("/proc/uptime").read().split()[0])
moments = {"agent": boot + since_boot(os.getppid()), "rank": boot + since_boot(os.getpid())}
import torch
import torch.distributed as dist
moments["torch"] = time.time()
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
model(torch.ones(4, 8)).sum().backward()
moments["step"] = time.time()
print("TEXT", dist.get_rank(), *(f"{name}={moment:.2f}" for name, moment in moments.items()), flush=True)
time.sleep(10**6)
"""
ROUNDS = 5
PAIRS = 4
"""Each side is the first as often as the other."""
QUIET_S = 2.0
LINE = 100 * 10**6 // 8
"""Bytes a second of a narrow line."""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    return tmp_path / "code"


@pytest.fixture
def small(operator: LocalNode) -> Iterator[None]:
    """Lets the node's pods have 2 GiB together, so that they use the memory of files again that are on the disk.

    A virtual machine that gives its host back what is free has to ask for more memory, which takes up to ten times as
    long as to use what it has: 2 s for the 500 MB of an upload. Not in version 2 of cgroups, which would hold up
    whoever leaves much to the kernel to write.
    """
    limits = [hierarchy / operator.directory.name / "memory.limit_in_bytes" for hierarchy in hierarchies()]
    there = {limit: limit.read_text() for limit in limits if limit.exists()}
    for limit in there:
        limit.write_text(str(2 * 2**30))
    yield
    for limit, before in there.items():
        limit.write_text(before)


@pytest.fixture
def person(operator: LocalNode, code: Path) -> Person:
    """Types a line of `kubectl torchrun` in the directory with the code; it must end well."""
    kubeconfig = operator.control_plane.kubeconfig("person", ["system:masters"])

    async def typed(*words: str) -> Ended:
        ended = await run(*words, "-n", NAMESPACE, kubeconfig=kubeconfig, directory=code, timeout_s=300)
        assert ended.status == 0, ended.err
        return ended

    return typed


async def first_step(node: LocalNode, place: Place, job: str, text: str) -> dict[str, float]:
    """The moments of the slower worker, once both have made a step of the code that prints this text."""
    await place.reaches(Phase.RUNNING, job, timeout_s=120)
    found: list[dict[str, float]] = []

    async def both() -> bool:
        logs = [await log(node, job, index=index) for index in (0, 1)]
        lines = [match[1] for said in logs if (match := re.search(rf"^{text} \d (.*)$", said, re.MULTILINE))]
        found[:] = [{name: float(at) for name, at in (part.split("=") for part in line.split())} for line in lines]
        return len(found) == 2

    await until(both, timeout_s=180)
    return max(found, key=lambda moments: moments["step"])


def parts(begun: float, moments: dict[str, float]) -> dict[str, float]:
    """Seconds from the command's start to the first step, by what passed in them."""
    return {
        "to torchrun": max(moments["agent"] - begun, 0.0),
        "torchrun to rank": moments["rank"] - max(moments["agent"], begun),
        "import torch": moments["torch"] - max(moments["rank"], begun),
        "to the first step": moments["step"] - max(moments["torch"], begun),
        "whole": moments["step"] - begun,
    }


def row(title: str, rounds: list[dict[str, float]]) -> None:
    middle = {name: median(one[name] for one in rounds) for name in rounds[0]}
    worst = max(one["whole"] for one in rounds)
    print(
        f"{title:32}", *(f"{name} {seconds:5.2f}" for name, seconds in middle.items()), f"worst {worst:.2f}", sep="  "
    )


@pytest.mark.parametrize("kind", ["hot-reload", "warm-start"])
async def test_new_code_in_the_same_pods(
    kind: str, operator: LocalNode, place: Place, code: Path, person: Person
) -> None:
    (code / "train.py").write_text(SCRIPT.replace("TEXT", "text-0"))
    await person("submit", "--queue", "queue", "--nodes", "2", f"--{kind}", "--name", kind, "python train.py")
    await first_step(operator, place, kind, "text-0")
    rounds: list[dict[str, float]] = []
    for number in range(1, ROUNDS + 1):
        (code / "train.py").write_text(SCRIPT.replace("TEXT", f"text-{number}"))
        begun = time.time()
        await person("sync", kind)
        ended = time.time()
        rounds.append(
            parts(begun, await first_step(operator, place, kind, f"text-{number}")) | {"sync ended": ended - begun}
        )
    row(kind, rounds)
    await person("delete", kind)


async def test_new_code_by_a_new_job(operator: LocalNode, place: Place, code: Path, person: Person) -> None:
    rounds: list[dict[str, float]] = []
    for number in range(ROUNDS):
        (code / "train.py").write_text(SCRIPT.replace("TEXT", f"text-{number}"))
        begun, name = time.time(), f"again-{number}"
        await person("submit", "--queue", "queue", "--nodes", "2", "--name", name, "python train.py")
        rounds.append(parts(begun, await first_step(operator, place, name, f"text-{number}")))
        await person("delete", name)
    row("a new job", rounds)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("what", "tree"),
    [
        ("500 MB", plant_large),
        ("20,000 small files", plant_small),
        ("20,000 that do not shrink", plant_noise),
    ],
)
async def test_upload_beside_kubectl_cp(
    what: str, tree: Callable[[Path], None], operator: LocalNode, place: Place, code: Path, person: Person
) -> None:
    """Both commands whole, from their start to their end, to pods that wait for them.

    The hashes of the files are known from the command that made the job. At the end of a submit all is on the disk,
    which cp leaves to the kernel.
    """
    tree(code)
    kubeconfig = operator.control_plane.kubeconfig("person", ["system:masters"])
    name = "copies-" + re.sub(r"\W+", "-", what.lower())
    ours, theirs = list[float](), list[float]()
    for number in range(PAIRS):
        for side in ("ours", "theirs")[:: 1 if number % 2 else -1]:
            job = f"{name}-{side}-{number}"
            line = ("submit", "--queue", "queue", "--gpus", "0", "--name", job, "true")
            await interrupted(*line, "-n", NAMESPACE, after=f"{job} created", kubeconfig=kubeconfig, directory=code)
            await listens(operator, job)
            os.sync()
            begun = time.monotonic()
            if side == "ours":
                await person(*line)
                ours.append(time.monotonic() - begun)
            else:
                target = f"{NAMESPACE}/{job}-sync-0:/workspace/tree"
                await operator.control_plane.kubectl("cp", str(code), target, "--container=fetch", timeout_s=600)
                theirs.append(time.monotonic() - begun)
            await person("delete", job, "--wait")
    ratios = [cp / own for cp, own in zip(theirs, ours, strict=True)]
    print(
        f"{what:25}  submit {median(ours):5.1f} s  kubectl cp {median(theirs):5.1f} s  "
        f"times faster {median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    )


@pytest.mark.usefixtures("small")
async def test_upload_over_a_narrow_line(operator: LocalNode, place: Place, code: Path) -> None:
    """20,000 small files of code over 100 Mbit/s, a line that people have between them and their cluster."""
    plant_small(code)
    kubeconfig = operator.control_plane.kubeconfig("person", ["system:masters"])
    host = operator.control_plane.host
    async with narrowed(int(host.rpartition(":")[2])) as port:
        far = kubeconfig.with_suffix(".far")
        far.write_text(kubeconfig.read_text().replace(host, f"https://127.0.0.1:{port}"))
        took: dict[str, list[float]] = {"submit": [], "kubectl cp": []}
        for number in range(PAIRS):
            for side in list(took)[:: 1 if number % 2 else -1]:
                job = f"far-{number}-{side.replace(' ', '-')}"
                line = ("submit", "--queue", "queue", "--gpus", "0", "--name", job, "true", "-n", NAMESPACE)
                await interrupted(*line, after=f"{job} created", kubeconfig=kubeconfig, directory=code)
                await listens(operator, job)
                os.sync()
                begun = time.monotonic()
                if side == "submit":
                    assert (await run(*line, kubeconfig=far, directory=code, timeout_s=300)).status == 0
                else:
                    target = f"{NAMESPACE}/{job}-sync-0:/workspace/tree"
                    copy = ("cp", str(code), target, "--container=fetch")
                    await operator.control_plane.kubectl(*copy, kubeconfig=far, timeout_s=600)
                took[side].append(time.monotonic() - begun)
                await run("delete", job, "--wait", "-n", NAMESPACE, kubeconfig=kubeconfig, directory=code)
    ratios = [cp / own for own, cp in zip(*took.values(), strict=True)]
    print(
        f"20,000 small files over {LINE * 8 / 10**6:.0f} Mbit/s: submit {median(took['submit']):.1f} s  "
        f"kubectl cp {median(took['kubectl cp']):.1f} s  "
        f"times faster {median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    )


@asynccontextmanager
async def narrowed(port: int) -> AsyncIterator[int]:
    """Yields a port that leads to another one, each connection and direction at the speed of the line.

    Both sides send content over one connection.
    """

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(2**16):
                target.write(data)
                await target.drain()
                await asyncio.sleep(len(data) / LINE)
        target.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, away = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, away), pump(there, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.usefixtures("small")
async def test_a_second_submit_after_one_change(
    operator: LocalNode, place: Place, queue_spec: dict[str, Any], code: Path, person: Person
) -> None:
    """With a cache claim; 500 MB, of which one file has changed.

    Whole: the command from its start to its end, with the making of its job and the start of its pod. Or to a pod that
    waits for it, as `kubectl cp` above.
    """
    plant_large(code)
    kubeconfig = operator.control_plane.kubeconfig("person", ["system:masters"])
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "2Gi"}}}
    await place.admin.create(PVC, {"metadata": {"name": "cache"}, "spec": claim}, NAMESPACE)
    workspace = queue_spec["storage"]["workspace"] | {"cacheClaimName": "cache"}
    await place.queue("cached", **queue_spec | {"storage": {"workspace": workspace}})
    took: list[float] = []
    for number in range(7):
        (code / "train.py").write_text(f"print({number})\n")
        job = f"cached-{number}"
        line = ("submit", "--queue", "cached", "--gpus", "0", "--name", job, "python train.py")
        if number % 2 == 0 and number:
            await interrupted(*line, "-n", NAMESPACE, after=f"{job} created", kubeconfig=kubeconfig, directory=code)
            await listens(operator, job)
        os.sync()
        begun = time.monotonic()
        await person(*line)
        took.append(time.monotonic() - begun)
    first, whole, waiting = took[0], took[1::2], took[2::2]
    print(
        f"submit of 500 MB with a cache claim: first {first:.1f} s, after one change "
        f"{median(whole):.1f} s ({min(whole):.1f} to {max(whole):.1f}), "
        f"to a pod that waits {median(waiting):.1f} s ({min(waiting):.1f} to {max(waiting):.1f})"
    )


async def listens(node: LocalNode, job: str) -> None:
    """Waits until the sync pod of a job does, and all who had to do with its start are done."""
    connect = f"import socket; socket.create_connection(('127.0.0.1', {UPLOAD_PORT}))"
    line = ("exec", f"{job}-sync-0", f"--namespace={NAMESPACE}", "--container=fetch", "--", "python3", "-c", connect)

    async def connected() -> bool:
        with suppress(CommandFailed):
            await node.control_plane.kubectl(*line)
            return True
        return False

    await until(connected, timeout_s=60)
    await asyncio.sleep(QUIET_S)
