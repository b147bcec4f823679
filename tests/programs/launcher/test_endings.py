"""How programs end that are not as simple as torchrun: shells, programs without children, and what cannot be killed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from launchers import LAUNCHER, Crew, crew
from waiting import until

SAVES = """\
import json, os, signal, sys, time

def ended(number, frame):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps({"signal": number, "pid": os.getpid()}) + "\\n")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    time.sleep(0.5)  # it saves
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps({"saved": os.getpid()}) + "\\n")
    os._exit(3)

signal.signal(signal.SIGTERM, ended)
with open(os.environ["NOTES"], "a") as file:
    file.write(json.dumps({"text": open("train.py").read(), "pid": os.getpid()}) + "\\n")
while True:
    signal.pause()
"""


@pytest_asyncio.fixture
async def job(tmp_path: Path) -> AsyncIterator[Crew]:
    async with crew(tmp_path, {"train.py": "one"}) as made:
        (made.bin / "saves").write_text(f"#!{sys.executable} -IS\n{SAVES}")
        (made.bin / "saves").chmod(0o755)
        yield made


@pytest.mark.parametrize("line", ["exec saves", "saves; true"], ids=["alone", "below a shell"])
async def test_program_that_is_stopped_may_save(job: Crew, line: str) -> None:
    """It is told once and has its time, also if it has no children or a shell that dies before it."""
    pod = await job.pod(0, nodes=1, program=["sh", "-c", line])
    before = await pod.started(1)
    await job.commit({"train.py": "two"})
    await pod.started(2)
    assert [note["signal"] for note in pod.notes() if "signal" in note] == [signal.SIGTERM]
    assert [note["saved"] for note in pod.notes() if "saved" in note] == [before["pid"]]


async def test_what_a_shell_leaves_to_a_signal_may_save(job: Crew) -> None:
    pod = await job.pod(0, nodes=1, program=["sh", "-c", "saves; true"])
    start = await pod.started(1)
    os.kill(pod.pid, signal.SIGTERM)
    assert await pod.ended() == 128 + signal.SIGTERM
    assert [note["saved"] for note in pod.notes() if "saved" in note] == [start["pid"]]


AGENT = """\
import os, signal

def ended(number, frame):
    os.kill(rank, number)
    os.waitpid(rank, 0)
    os._exit(1)

signal.signal(signal.SIGTERM, ended)  # the test goes on as soon as the rank has started
rank = os.fork()
if rank == 0:
    os.setsid()
    os.execvp("saves", ["saves"])
while True:
    signal.pause()
"""


async def test_ranks_below_a_shell_are_told_once(job: Crew) -> None:
    """They hear of it from torchrun alone: a second signal would interrupt what they do about the first."""
    (job.bin / "torchrun").write_text(f"#!{sys.executable} -IS\n{AGENT}")
    pod = await job.pod(0, nodes=1, program=["sh", "-c", "torchrun a.py; exit 5"])
    before = await pod.started(1)
    await job.commit({"train.py": "two"})
    await pod.started(2)
    assert [note["pid"] for note in pod.notes() if "signal" in note] == [before["pid"]]
    assert [note["saved"] for note in pod.notes() if "saved" in note] == [before["pid"]]


def run(directory: Path, program: str, *, patch: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a launcher that no companion answers, with a change to it."""
    code = f"""
import sys
from torchctl.launcher import launcher
{patch}
options = ["--companion", "http://127.0.0.1:9/KEY", "--index", "0", "--nodes", "1", "--workdir", ".", "--patience", "0"]
sys.exit(launcher.main([*options, "--", "sh", "-c", {program!r}]))
"""
    return subprocess.run([sys.executable, "-c", code], cwd=directory, text=True, timeout=60, **options)


def test_stderr_that_takes_nothing_ends_no_training(tmp_path: Path) -> None:
    """A program may make the pipe that it shares with the launcher non-blocking, and its reader may be slow."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(65536))
    assert run(tmp_path, "exit 7", stderr=write).returncode == 7
    os.close(read)
    os.close(write)


AFTER_THE_END = """
def talk(loop):
    loop.core.heard = True
    if loop.core.state == "exited":
        raise RuntimeError("a fault")

launcher.Loop._talk = talk
"""


@pytest.mark.parametrize("code", [0, 7])
def test_fault_after_the_end_keeps_the_exit_code(code: int, tmp_path: Path) -> None:
    done = run(tmp_path, f"exit {code}", patch=AFTER_THE_END, capture_output=True)
    assert (done.returncode, done.stderr.count("it has a fault")) == (code, 1)
    assert "Traceback" not in done.stderr


SPARES = """
import os
launcher.EXIT_S = launcher.FORCE_S = 1
kill = launcher.kill
launcher.kill = lambda pid, signum: None if "sleep" in open(f"/proc/{pid}/comm").read() else kill(pid, signum)
"""


def test_process_that_cannot_be_killed_is_waited_for_in_vain(tmp_path: Path) -> None:
    """The launcher ends nevertheless, and says so: one stands for others that hang in the kernel."""
    # Until it has become `sleep` it bears the shell's name, and is not spared.
    become = "until grep -q sleep /proc/$!/comm; do :; done"
    program = f"sleep 600 2>{os.devnull} & echo $! >{tmp_path}/sleeper; {become}; exit 7"
    done = run(tmp_path, program, patch=SPARES, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    os.kill(int((tmp_path / "sleeper").read_text()), signal.SIGKILL)
    assert done.returncode == 7
    assert "did not end within 1 s" in done.stderr


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C.UTF-8"}], ids=["unset", "set"])
def test_program_has_the_environment_of_the_container(given: dict[str, str], tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "LANG": "C", **given}
    options = ["--companion", "http://127.0.0.1:9/K", "--index", "0", "--nodes", "1", "--workdir", "."]
    command = [sys.executable, str(LAUNCHER), *options, "--", "env", "-0"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert dict(line.split("=", 1) for line in done.stdout.split("\0")[:-1]) == environ


async def test_directories_of_earlier_worlds_are_removed(job: Crew, tmp_path: Path) -> None:
    """torchrun would leave a directory for each start, in a container that lives for weeks."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    pod = await job.pod(0, nodes=1, environ={"TMPDIR": str(temporary)})
    first = Path((await pod.started(1))["env"]["PET_LOG_DIR"])
    assert first.parent == temporary
    (first / "attempt_0").mkdir()
    await job.commit({"train.py": "two"})
    second = Path((await pod.started(2))["env"]["PET_LOG_DIR"])

    async def alone() -> bool:
        return [*temporary.iterdir()] == [second]

    await until(alone)


async def test_directory_for_logs_that_was_given_is_kept(job: Crew, tmp_path: Path) -> None:
    pod = await job.pod(0, nodes=1, environ={"PET_LOG_DIR": str(tmp_path)})
    assert (await pod.started(1))["env"]["PET_LOG_DIR"] == str(tmp_path)
