"""A job of launchers as processes of this machine: each worker has its own address on loopback and its own volume.

The program is a torchrun that trains nothing: it notes how it was started, starts ranks in sessions of their own, and
ends when it is told to.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from waiting import until

from torchctl.launcher import launcher
from torchctl.workspace.companion import Companion
from torchctl.workspace.companionserver import application
from torchctl.workspace.core import Limits
from torchctl.workspace.handout import copy
from torchctl.workspace.marker import Marker
from torchctl.workspace.membership.core import Settings
from torchctl.workspace.serve import running
from torchctl.workspace.staging import Staging
from torchctl.workspace.steps import drive
from torchctl.workspace.tree import digest
from torchctl.workspace.wanted import read_target

__all__ = ["KEY", "LAUNCHER", "Crew", "Pod", "alive", "crew"]

KEY = "4f1c-uid"
LAUNCHER = Path(launcher.__file__)
LIMITS = Limits()
SETTINGS = Settings(silent_s=45, dropped_s=0.5, learn_s=3, settle_s=0.5)

TORCHRUN = """\
#!{python} -IS
import json, os, signal, sys

def note(**what):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps(what) + "\\n")

def ended(number, frame):
    note(signal=number, pid=os.getpid())
    for rank in ranks:
        os.kill(rank, signal.SIGTERM)
        os.waitpid(rank, 0)
    os._exit(1)

ranks = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        while True:
            signal.pause()
    ranks.append(pid)
signal.signal(signal.SIGTERM, ended)
control = os.open(os.environ["CONTROL"], os.O_RDWR)
with open("train.py") as file:
    text = file.read()
note(pid=os.getpid(), ranks=ranks, text=text, argv=sys.argv[1:], env=dict(os.environ))
words = os.read(control, 100).decode().split()
for rank in ranks:
    os.kill(rank, signal.SIGKILL)
os._exit(int(words[0]))
"""


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Pod:
    """One worker: a launcher, its volume, and what its programs noted."""

    def __init__(self, directory: Path, index: int, command: Sequence[str], environ: dict[str, str]) -> None:
        self.directory, self.index = directory, index
        self.workdir = directory / "app"
        self.log = directory / "log"
        self.notes_file, self.control = directory / "notes", directory / "control"
        self.termination_log = directory / "termination-log"
        self.temporary = directory / "tmp"
        self._command, self._environ = command, environ
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.notes_file.touch()
        self.termination_log.touch()
        self.temporary.mkdir(exist_ok=True)
        if not self.control.exists():
            os.mkfifo(self.control)
        ours = {
            "POD_IP": f"127.0.0.{self.index + 2}",
            "NOTES": str(self.notes_file),
            "CONTROL": str(self.control),
            "TORCHELASTIC_ERROR_FILE": str(self.termination_log),
            "TMPDIR": str(self.temporary),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=ours | self._environ, cwd=self.workdir, stdout=log, stderr=log
            )

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.notes_file.read_text().splitlines()]

    def starts(self) -> list[dict[str, Any]]:
        return [note for note in self.notes() if "text" in note]

    async def started(self, times: int) -> dict[str, Any]:
        """Wait until the program was started so often, and return how."""

        async def look() -> list[dict[str, Any]]:
            return self.starts()[times - 1 :]

        return (await until(look))[0]

    def said(self) -> str:
        """The end of the log."""
        return self.log.read_text()[-4000:]

    def tell_program(self, code: int) -> None:
        """Let the program end with this exit code."""
        descriptor = os.open(self.control, os.O_RDWR)
        os.write(descriptor, f"{code}\n".encode())
        os.close(descriptor)

    async def ended(self, timeout_s: float = 120) -> int:
        """Wait for the launcher's end, and return its exit code."""
        assert self.process
        process = self.process

        async def look() -> bool:
            return process.poll() is not None

        await until(look, timeout_s=timeout_s)
        return process.wait()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The launcher does nothing, and its ranks go on."""
        assert self.process
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the pod at once, as a container ends with its first process."""
        if self.process and self.process.poll() is None:
            below = launcher.descendants(self.process.pid, set())
            self.process.kill()
            for pid in below:
                launcher.kill(pid, signal.SIGKILL)
            self.process.wait()


class Crew:
    """The pods of a job, and the claim with its companion."""

    def __init__(self, directory: Path, python: str, torchrun_text: str, environ: Mapping[str, str]) -> None:
        self.directory, self.python, self.environ = directory, python, environ
        self.claim = directory / "claim"
        self.claim.mkdir()
        self.bin = directory / "bin"
        self.bin.mkdir()
        torchrun = self.bin / "torchrun"
        torchrun.write_text(torchrun_text)
        torchrun.chmod(0o755)
        self.pods: list[Pod] = []
        self.companion: Companion | None = None
        self.port = 0
        self._serving: asyncio.Task[None] | None = None

    async def commit(self, files: Mapping[str, str]) -> str:
        """Put a tree into the claim, as the receiver does, and return its digest."""
        staging = Staging(self.claim)
        staging.open()
        for name, text in files.items():
            path = staging.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        found = await drive(digest(staging.tree, LIMITS))
        staging.publish(
            Marker(revision=found.digest, digest=found.digest, bytes=found.bytes, files=found.files, source="zip")
        )
        if self.companion:
            self.companion.committed()
        return found.digest

    async def begin_companion(self, settings: Settings = SETTINGS) -> None:
        """Start a companion that knows nothing, at the address of the one before."""
        ready = asyncio.Event()
        self.companion = Companion(partial(read_target, self.claim), time.monotonic, settings)
        self._serving = asyncio.create_task(self._serve(self.companion, ready))
        await ready.wait()

    async def _serve(self, companion: Companion, ready: asyncio.Event) -> None:
        app = application(self.claim, companion, limits=LIMITS, key=KEY)
        async with running(app, host="127.0.0.1", port=self.port, handler_cancellation=True, grace_s=0.0) as self.port:
            ready.set()
            await companion.run()

    async def end_companion(self) -> None:
        serving, self._serving, self.companion = self._serving, None, None
        if serving:
            serving.cancel()
            await asyncio.wait([serving])

    async def pod(
        self,
        index: int,
        *,
        nodes: int = 2,
        options: Sequence[str] = (),
        program: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        by: Callable[[Path], Sequence[str]] = lambda directory: (),
    ) -> Pod:
        """Make a worker's volume as the init container does, and start the launcher.

        Args:
            before: a program that starts what stands behind it.
            by: a Python program that runs the launcher, and its arguments, given the pod's directory.
        """
        directory = self.directory / f"pod-{index}-{len(self.pods)}"
        (directory / "app").mkdir(parents=True)
        await copy(self.claim, directory / "app", timeout_s=10, limits=LIMITS)
        command = [
            *(*before, self.python, "-I", "-S", *by(directory), str(LAUNCHER)),
            *("--companion", f"http://127.0.0.1:{self.port}/launcher/{KEY}"),
            *("--index", str(index), "--nodes", str(nodes), "--nproc", "2"),
            *("--workdir", str(directory / "app"), *options, "--"),
            *(program or ("torchrun", "train.py", "--epochs", "3")),
        ]
        today = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_CONF": "read_timeout=600",
            "PET_RDZV_ENDPOINT": "resnet-0:29500",
            "MASTER_PORT": "29500",
        }
        pod = Pod(directory, index, command, today | dict(self.environ) | dict(environ or {}))
        self.pods.append(pod)
        pod.start()
        return pod

    async def two(self, options: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> tuple[Pod, Pod]:
        return await self.pod(0, options=options, environ=environ), await self.pod(1, options=options, environ=environ)

    async def until(self, look: Callable[["Companion"], object]) -> None:
        """Wait until the companion knows something."""

        async def seen() -> object:
            return self.companion and look(self.companion)

        await until(seen)


@asynccontextmanager
async def crew(
    directory: Path,
    files: Mapping[str, str],
    *,
    python: str = sys.executable,
    torchrun: str = TORCHRUN.replace("{python}", sys.executable),
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Crew]:
    """A job without pods, whose claim has these files. Its processes end with it.

    Args:
        python: runs the launcher.
        torchrun: the text of the program of this name.
        environ: what the image sets for its containers.
    """
    made = Crew(directory, python, torchrun, environ or {})
    await made.commit(files)
    await made.begin_companion()
    try:
        yield made
    finally:
        for pod in made.pods:
            pod.kill()
        await made.end_companion()
