"""The end of a process that hangs in a thread."""

import subprocess
import sys

from torchctl.runtime.lastresort import EXIT_STUCK, last_resort

STUCK = """
import threading
import anyio, anyio.to_thread
from torchctl.runtime.lastresort import last_resort

begun = threading.Event()

def hang():
    begun.set()
    threading.Event().wait()  # nothing ever sets it

async def main():
    with last_resort() as deadline:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, hang)
            while not begun.is_set():
                await anyio.sleep(0.001)
            deadline.set(0.1)
            tasks.cancel_scope.cancel()

anyio.run(main)
"""


def test_process_with_a_stuck_thread_ends_at_the_deadline() -> None:
    """A cancelled task waits for its thread, and so does the interpreter."""
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)
    assert ended.returncode == EXIT_STUCK
    assert "not stopped after 0.1 s" in ended.stderr


def test_deadline_ends_with_its_block() -> None:
    with last_resort() as deadline:
        deadline.set(3600)
        deadline.set(0)  # the first one counts
    assert deadline._timer is not None
    deadline._timer.join(10)
    assert not deadline._timer.is_alive()
