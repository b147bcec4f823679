"""A managed process ends with whoever started it, and not before."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchctl.testing.process import ManagedProcess

_FOREVER = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
_DEAF = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()",
]

_PARENT = """
import os, signal, sys
from pathlib import Path
from torchctl.testing.process import ManagedProcess
process = ManagedProcess("child", sys.argv[2:], Path(sys.argv[1]))
process.start()
print(process.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ManagedProcess]:
    process = ManagedProcess("forever", _FOREVER, tmp_path / "log")
    yield process
    process.kill()


def _ends_within(pid: int, seconds: float) -> bool:
    """Waits for a process that may not be our child."""
    import select

    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def test_the_kernel_kills_it_when_the_starter_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path / "log"), *_FOREVER], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
        assert _ends_within(child, 10)


def test_it_survives_the_thread_that_started_it(process: ManagedProcess) -> None:
    thread = threading.Thread(target=process.start)
    thread.start()
    thread.join()
    assert not _ends_within(process.pid, 0.3)
    assert process.running


async def test_pid_and_exit_status_are_those_of_the_command(tmp_path: Path) -> None:
    process = ManagedProcess(
        "seven", [sys.executable, "-c", "import os; print(os.getpid()); os._exit(7)"], tmp_path / "log"
    )
    process.start()
    pid = process.pid
    assert await process.wait() == 7
    assert process.returncode == 7
    assert process.tail() == str(pid)


async def test_stop_ends_even_a_paused_process(process: ManagedProcess) -> None:
    process.start()
    process.pause()
    await process.stop()
    assert process.returncode == -signal.SIGTERM


async def test_process_that_ignores_sigterm_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    process = ManagedProcess("deaf", _DEAF, tmp_path / "log")
    process.start()
    while "up" not in process.tail():
        assert process.running
    await process.stop(grace_s=0.1)
    assert process.returncode == -signal.SIGKILL


async def test_its_log_is_kept_over_a_restart(process: ManagedProcess) -> None:
    for run in (1, 2):
        process.start()
        while process.tail().count("up") < run:
            assert process.running
        await process.stop()
    assert process.tail() == "up\nup"


def test_starting_it_twice_is_refused(process: ManagedProcess) -> None:
    process.start()
    with pytest.raises(RuntimeError, match="forever is already running"):
        process.start()


def test_process_before_its_start_has_no_pid(process: ManagedProcess) -> None:
    process.kill()
    assert not process.running
    assert process.tail() == ""
    assert repr(process) == "<forever not started>"
    with pytest.raises(RuntimeError, match="was not started"):
        _ = process.pid
