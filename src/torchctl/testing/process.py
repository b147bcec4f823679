"""A child process with its own log that cannot outlive this process, however this one ends.

PR_SET_PDEATHSIG makes the kernel kill the child when its parent dies, SIGKILL included. It has three traps, each
with its remedy:

- The kernel means the parent *thread*. A process started from a worker thread would be killed when that
  thread ends, so every process is started from one thread that lives as long as this process does.
- A parent that dies between fork and prctl is not noticed, so the child compares its parent afterwards.
- Code that runs between fork and exec (`preexec_fn`) can deadlock in a program with threads, so a small
  Python program does it and then becomes the command: same pid, same exit status.
"""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio

__all__ = ["ManagedProcess"]

_BECOME = """
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0):
    sys.exit("PR_SET_PDEATHSIG was refused")
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""


@functools.cache
def _starter(pid: int) -> ThreadPoolExecutor:
    """The thread that starts processes; one per process id, because threads do not survive a fork."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="torchctl-starter")


class ManagedProcess:
    """One command that can be started, stopped, paused and started again; its output goes to `log`."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self.argv = tuple(argv)
        self._env = dict(env) if env is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        state = "running" if self.running else f"exited {self.returncode}" if self._process else "not started"
        return f"<{self.name} {state}>"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError if it was never started."""
        return self._child().pid

    @property
    def returncode(self) -> int | None:
        """The exit status: None while it runs or before its start, negative if a signal ended it."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Starts it, appending to the log of earlier runs. Raises RuntimeError when it is running."""
        if self.running:
            raise RuntimeError(f"{self.name} is already running")
        with self.log.open("ab") as output:
            command = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *self.argv]
            self._process = _starter(os.getpid()).submit(self._spawn, command, output.fileno()).result()

    def _spawn(self, command: list[str], output: int) -> "subprocess.Popen[bytes]":
        # A new session, so that Ctrl-C in a terminal reaches only the tests, which then stop everything in order.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=self._env,
            start_new_session=True,
        )

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; a process that has ended is left alone."""
        if self._process:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Freezes it with SIGSTOP: connections stay open, but it does not answer."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Sends SIGKILL and waits until the process is gone. Safe to call at any time."""
        if self._process:
            self._process.kill()
            self._process.wait()

    async def stop(self, grace_s: float = 10.0) -> None:
        """Sends SIGTERM, then SIGKILL after `grace_s`."""
        if not self.running:
            return
        self.resume()
        self.signal(signal.SIGTERM)
        with anyio.move_on_after(grace_s):
            await self.wait()
        self.kill()

    async def wait(self) -> int:
        """Returns the exit status once the process has ended."""
        child = self._child()
        if child.poll() is None:
            handle = os.pidfd_open(child.pid)
            try:
                await anyio.wait_readable(handle)
            finally:
                os.close(handle)
        return child.wait()

    def join(self, timeout_s: float) -> int | None:
        """Blocks until the process has ended, and returns its exit status; None after `timeout_s`."""
        try:
            return self._child().wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def tail(self, lines: int = 15) -> str:
        """Returns the last lines of the log."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 64 * 1024))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def _child(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process
