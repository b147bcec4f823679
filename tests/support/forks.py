"""Programs of ours as processes that start within milliseconds, so that very many can be killed.

One process imports what the programs need, and forks a child for each start; it is told by lines of JSON. Each child
runs a program's `main` as the installed script does.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["Forked", "Forks", "forks"]

PROGRAMS = {"torchctl": "torchctl.cli.app", "kubectl-torchrun": "torchctl.cli.kubectl"}
IMPORTED = (
    *PROGRAMS.values(),
    "stepping",
    "torchctl.cli.torchrun.follow",
    "torchctl.cli.torchrun.output",
    "torchctl.cli.torchrun.progress",
    "torchctl.cli.torchrun.restart",
    "torchctl.cli.torchrun.submit",
    "torchctl.cli.torchrun.sync",
    "torchctl.cli.workspace",
    "torchctl.client.changes",
    "torchctl.client.code",
    "torchctl.client.states",
    "torchctl.client.submit",
    "torchctl.client.sync",
    "torchctl.workspace.companionserver",
    "torchctl.workspace.receive",
)


@dataclass
class Forked:
    """A program that was started. `status` is a wait status once it has ended."""

    pid: int
    out: Path
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = -1

    def kill(self, _: int = 0) -> None:
        """Sends SIGKILL."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    async def wait(self, timeout_s: float = 120.0) -> int:
        """The exit code, once it has ended; negative for a signal."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        except TimeoutError:
            raise AssertionError(f"process {self.pid} goes on:\n{self.said}") from None
        return os.waitstatus_to_exitcode(self.status)

    @property
    def said(self) -> str:
        """All that it printed."""
        return self.out.read_text()


class Forks:
    """Starts programs."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._starting: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()
        self._running: dict[int, Forked] = {}
        self._lock = asyncio.Lock()

    async def start(
        self,
        *argv: str,
        out: Path,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        gate: str = "",
        root: Path | None = None,
    ) -> Forked:
        """Starts a program.

        Args:
            out: A file for all that it prints, which may have something already.
            environ: Variables besides those of this process.
            gate: Address of the gate that its steps pass.
            root: Below which changes of files are steps.
        """
        order = {"argv": argv, "out": str(out), "cwd": str(cwd or Path.cwd()), "environ": {**(environ or {})}}
        order |= {"gate": gate, "root": str(root or "/nowhere")}
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        async with self._lock:
            self._starting.put_nowait(future)
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            await self._process.stdin.drain()
            made = Forked(await future, out)
            self._running[made.pid] = made
        return made

    async def listen(self) -> None:
        """Takes what the forking process tells, until it ends."""
        assert self._process.stdout is not None
        ended: dict[int, int] = {}
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            if "status" not in told:
                self._starting.get_nowait().set_result(told["pid"])
                await asyncio.sleep(0)  # `start` notes it before its end is told
            else:
                ended[told["pid"]] = told["status"]
            for pid in ended.keys() & self._running.keys():
                made = self._running.pop(pid)
                made.status = ended.pop(pid)
                made.ended.set()


@asynccontextmanager
async def forks() -> AsyncIterator[Forks]:
    """Yields what starts programs; those that run are killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__)),
        stdin=PIPE,
        stdout=PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    made = Forks(process)
    listening = asyncio.create_task(made.listen())
    try:
        yield made
    finally:
        for forked in list(made._running.values()):
            forked.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await listening


def _serve() -> None:
    for name in IMPORTED:
        import_module(name)
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    with os.fdopen(os.dup(0), "rb") as orders:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for line in orders:
            order = json.loads(line)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            pid = os.fork()
            if pid == 0:
                _run(order)
            _tell(pid=pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _reap() -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _tell(pid=ended[0], status=ended[1])


def _tell(**what: int) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def _run(order: dict[str, Any]) -> None:
    """Is the program from here on."""
    code: object = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(order["cwd"])
        os.environ.update(order["environ"])
        sys.argv = order["argv"]
        if order["gate"]:
            import_module("stepping").ask_for_leave(order["gate"], order["root"])
        code = import_module(PROGRAMS[sys.argv[0]]).main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve()
