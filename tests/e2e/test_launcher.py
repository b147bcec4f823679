"""The launcher with real torchrun: two workers as processes of this machine, without a node."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from launchers import Crew, Pod, alive, crew
from waiting import until

SCRIPT = (Path(__file__).parent / "scripts" / "reload.py").read_text()
TORCHRUN = """\
#!{python}
import sys

from torch.distributed.run import main

sys.exit(main())
"""


def code(text: str) -> dict[str, str]:
    return {"train.py": SCRIPT.replace('"one"', repr(text))}


@pytest.fixture(scope="session")
def python(torch: Path) -> str:
    """A Python of this machine that loads PyTorch, which is made for that of the training image."""
    why = []
    for found in ("/usr/bin/python3", os.path.realpath(sys.executable)):
        command, environ = (found, "-c", "import torch.distributed.run"), {"PYTHONPATH": str(torch)}
        tried = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
        if tried.returncode == 0:
            return found
        why.append(f"{found}: {tried.stderr[-2000:]}")
    pytest.fail("no Python of this machine loads PyTorch\n" + "\n".join(why))


@pytest_asyncio.fixture(loop_scope="session")
async def job(tmp_path: Path, torch: Path, python: str) -> AsyncIterator[Crew]:
    environ = {"PYTHONPATH": str(torch), "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1", "HOME": str(tmp_path)}
    torchrun = TORCHRUN.replace("{python}", python)
    async with crew(tmp_path, code("one"), python=python, torchrun=torchrun, environ=environ) as made:
        yield made


async def workers(job: Crew, *, warm: bool) -> list[Pod]:
    options = ["--warm"] if warm else []
    return [await job.pod(index, options=options, program=["torchrun", "train.py"], environ=ONE) for index in (0, 1)]


ONE = {"PET_NPROC_PER_NODE": "1", "OMP_NUM_THREADS": "1"}


async def first_steps(pods: list[Pod], text: str) -> list[dict[str, Any]]:
    """Wait until the program with this text has made a step in every pod."""

    async def look() -> list[dict[str, Any]]:
        for pod in pods:
            assert alive(pod.pid), pod.said()
        steps = [note for pod in pods for note in pod.starts() if note["text"] == text]
        return steps if len(steps) == len(pods) else []

    return await until(look, timeout_s=240)


@pytest.mark.parametrize("warm", [False, True])
async def test_two_workers_take_up_new_code_again_and_again(job: Crew, warm: bool) -> None:
    """The same launchers, the new text, a world of two each time; with a warm start nothing is imported again."""
    pods = await workers(job, warm=warm)
    before = await first_steps(pods, "one")
    launchers = [pod.pid for pod in pods]
    for text in ("two", "three") if warm else ("two",):
        await job.commit(code(text))
        after = await first_steps(pods, text)
        assert [step["world"] for step in after] == [2, 2]
        assert after[0]["random"] != after[1]["random"]
        assert not any(alive(step["pid"]) for step in before)
        before = after
    assert launchers == [pod.pid for pod in pods]
    assert all(map(alive, launchers))
    assert [line for pod in pods for line in pod.log.read_text().splitlines() if "torchctl launcher" in line] == []


async def test_a_killed_torchrun_leaves_no_rank(job: Crew) -> None:
    """Forked ranks, which the launcher did not start."""
    pods = await workers(job, warm=True)
    steps = await first_steps(pods, "one")
    os.kill(steps[0]["ppid"], signal.SIGKILL)
    assert await pods[0].ended() == 128 + signal.SIGKILL
    assert not alive(steps[0]["pid"])
    assert await pods[1].ended() == 1  # its peer is gone


ENDS = """\
import atexit, random, sys, threading, time

def fail(what):
    raise ValueError(what)

print("begins", __name__, sys.argv, sys.path[0])
atexit.register(print, "ends")
threading.Thread(target=lambda: (time.sleep(0.5), print("thread ends"))).start()
if sys.argv[1:] == ["--code"]:
    sys.exit(42)
fail("boom")
"""


@pytest.mark.parametrize("program", [["train.py"], ["-m", "train"], ["train.py", "--code"]], ids=" ".join)
async def test_a_warm_program_ends_as_a_plain_one(job: Crew, program: list[str]) -> None:
    """Output, traceback and exit code are the same; the launcher adds nothing."""
    await job.commit({"train.py": ENDS})
    pods = [
        await job.pod(
            0,
            nodes=1,
            options=options,
            program=["torchrun", *program],
            environ=ONE | {"TORCHRUN_ATTEMPT": str(attempt)},
        )
        for attempt, options in enumerate(([], ["--warm"]))
    ]
    assert [await pod.ended() for pod in pods] == [1, 1]
    plain, warm = [own_lines(pod.log.read_text()).replace(str(pod.workdir), "APP") for pod in pods]
    assert "thread ends\nends\n" in plain
    assert warm == plain


def own_lines(log: str) -> str:
    """What the program itself wrote, and the exit code that torchrun names: other lines have pids and times."""
    lines = [line for line in log.splitlines(keepends=True) if "<frozen runpy>" not in line]
    first = next((number for number, line in enumerate(lines) if line.startswith("begins")), None)
    assert first is not None, log[-4000:]
    last = next(number for number, line in enumerate(lines) if line == "ends\n")
    codes = [line.partition("(pid")[0] for line in lines if "exitcode  :" in line]
    return "".join([*lines[first : last + 1], *codes])


LEAVES = """\
import os, sys
left = open(os.environ["NOTES"] + ".left", "w")
left.write("written")
if "--at-once" in sys.argv:
    left.flush()
    os._exit(0)
"""


@pytest.mark.parametrize("option", ["", "--at-once"])
async def test_a_warm_program_may_leave_as_it_likes(job: Crew, option: str) -> None:
    """With a file open, or without a word to the interpreter: torchrun sees the end, and what was written is there."""
    await job.commit({"train.py": LEAVES})
    pod = await job.pod(0, nodes=1, options=["--warm"], program=["torchrun", "train.py", option], environ=ONE)
    assert await pod.ended() == 0, pod.said()
    assert (pod.directory / "notes.left").read_text() == "written"
    assert "torchctl launcher" not in pod.log.read_text()
