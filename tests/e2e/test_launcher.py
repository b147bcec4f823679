"""The launcher with real torchrun: two workers as processes of this machine, without a node."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from launchers import Crew, Pod, alive, crew
from waiting import until

SCRIPT = (Path(__file__).parent / "scripts" / "reload.py").read_text()
TORCHRUN = """\
#!/usr/bin/python3
import sys

from torch.distributed.run import main

sys.exit(main())
"""


def code(text: str) -> dict[str, str]:
    return {"train.py": SCRIPT.replace('"one"', repr(text))}


@pytest_asyncio.fixture(loop_scope="session")
async def job(tmp_path: Path, torch: Path) -> AsyncIterator[Crew]:
    environ = {"PYTHONPATH": str(torch), "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1", "HOME": str(tmp_path)}
    async with crew(tmp_path, code("one"), python="/usr/bin/python3", torchrun=TORCHRUN, environ=environ) as made:
        yield made


async def workers(job: Crew, *, warm: bool) -> list[Pod]:
    options = ["--warm"] if warm else []
    return [await job.pod(index, options=options, program=["torchrun", "train.py"], environ=ONE) for index in (0, 1)]


ONE = {"PET_NPROC_PER_NODE": "1", "OMP_NUM_THREADS": "1"}


async def first_steps(pods: list[Pod], text: str) -> list[dict[str, Any]]:
    """Wait until the program with this text has made a step in every pod."""

    async def look() -> list[dict[str, Any]]:
        steps = [note for pod in pods for note in pod.starts() if note["text"] == text]
        return steps if len(steps) == len(pods) else []

    return await until(look, timeout_s=120)


@pytest.mark.parametrize("warm", [False, True])
async def test_two_workers_take_up_new_code_again_and_again(job: Crew, warm: bool) -> None:
    """The same launchers, the new text, a world of two each time; with a warm start nothing is imported again."""
    pods = await workers(job, warm=warm)
    before = await first_steps(pods, "one")
    launchers = [pod.pid for pod in pods]
    for text in ("two", "three"):
        await job.commit(code(text))
        after = await first_steps(pods, text)
        assert [step["world"] for step in after] == [2, 2]
        assert after[0]["random"] != after[1]["random"]
        assert not any(alive(step["pid"]) for step in before)
        before = after
    assert launchers == [pod.pid for pod in pods]
    assert all(map(alive, launchers))
    assert [line for pod in pods for line in pod.log.read_text().splitlines() if "torchctl launcher" in line] == []


@pytest.mark.parametrize("warm", [False, True])
async def test_a_killed_torchrun_leaves_no_rank(job: Crew, warm: bool) -> None:
    pods = await workers(job, warm=warm)
    steps = await first_steps(pods, "one")
    os.kill(steps[0]["ppid"], signal.SIGKILL)
    assert await pods[0].ended() == 128 + signal.SIGKILL
    assert not alive(steps[0]["pid"])
    assert await pods[1].ended() == 1  # its peer is gone


@pytest.mark.parametrize("warm", [False, True])
async def test_a_program_ends_as_it_does_under_torchrun(job: Crew, warm: bool) -> None:
    """Output, traceback, exit code and the termination message's root cause are those of torchrun itself."""
    await job.commit({"train.py": "import sys\nprint('out')\nsys.exit(42)\n"})
    options = ["--warm"] if warm else []
    pod = await job.pod(0, nodes=1, options=options, program=["torchrun", "train.py"], environ=ONE)
    assert await pod.ended() == 1
    log = pod.log.read_text()
    assert "out\n" in log
    assert "exitcode  : 42" in log
