"""Makes the reports in tests/unit/controllers/job/reports/: what real torchrun leaves when a training goes wrong.

    hack/reports/capture.py <directory with torch, for PYTHONPATH> [case ...]

Each worker is a torchrun of its own on this machine, with the environment and the command line that the operator
gives to a pod. What it leaves is read as the kubelet does (pkg/kubelet/kuberuntime/kuberuntime_container.go): the last
4096 bytes of the termination message's file; where it is empty and the exit code is not 0, the last 80 lines of the
log, and of these the last 2048 bytes. Paths of this machine are replaced beforehand by those of an image.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torchctl.controllers.job.children.command import argv

HERE = Path(__file__).resolve().parent
REPORTS = HERE.parents[1] / "tests" / "unit" / "controllers" / "job" / "reports"
MAX_FILE, MAX_LOG, MAX_LINES = 4096, 2048, 80
TIMEOUT_S = 150
TORCHRUN = """\
#!{python}
import sys

from torch.distributed.run import main

if __name__ == "__main__":
    sys.exit(main())
"""


@dataclass
class Worker:
    """One worker while it runs."""

    index: int
    directory: Path
    process: "subprocess.Popen[bytes]"

    @property
    def message(self) -> Path:
        return self.directory / f"message-{self.index}"

    @property
    def log(self) -> Path:
        return self.directory / f"log-{self.index}"

    def rank(self) -> int:
        """The process of its first rank."""
        return _children(_torchrun(self.process.pid))[0]


Happening = Callable[[list[Worker]], None]


@dataclass(frozen=True)
class Case:
    """How a training goes wrong.

    Args:
        line: The user's line; `python train.py ...` mostly.
        happens: What happens to the workers from outside, once all their ranks run.
        absent: Workers that never start.
    """

    line: str = "python train.py"
    setup: str | None = None
    nodes: int = 2
    processes: int = 1
    env: dict[str, str] = field(default_factory=dict)
    happens: Happening | None = None
    absent: tuple[int, ...] = ()


RECORDED = {"RECORDED": "1"}
"""The script uses @record."""


def _torchrun(pid: int) -> int:
    """The process of torchrun, which the shell of the command may still be above."""
    while _name(pid) == "sh":
        (pid,) = _children(pid)
    return pid


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def send(number: signal.Signals, worker: int, *, to_rank: bool = False) -> Happening:
    """A signal, to a worker's torchrun or to its first rank."""

    def happen(workers: list[Worker]) -> None:
        one = workers[worker]
        os.kill(one.rank() if to_rank else _torchrun(one.process.pid), number)

    return happen


def lose(worker: int) -> Happening:
    """The end of a worker with all its processes, as when its node goes or its memory is over."""

    def happen(workers: list[Worker]) -> None:
        agent = _torchrun(workers[worker].process.pid)
        for process in (agent, *_children(agent)):
            os.kill(process, signal.SIGKILL)

    return happen


CASES = {
    "exit-42": Case("python train.py exit 42"),
    "exit-42-recorded": Case("python train.py exit 42", env=RECORDED),
    "exit-42-of-4-processes": Case("python train.py exit 42", nodes=1, processes=4),
    "exit-42-static": Case("python train.py exit 42", env={"PET_RDZV_BACKEND": "static"}),
    "exit-42-after-restarts": Case("python train.py exit 42", nodes=1, processes=2, env={"PET_MAX_RESTARTS": "1"}),
    "exception": Case("python train.py exception"),
    "exception-recorded": Case("python train.py exception", env=RECORDED),
    "exception-recorded-of-4-processes": Case("python train.py exception", nodes=1, processes=4, env=RECORDED),
    "exception-deep-recorded": Case("python train.py deep", env=RECORDED),
    "exception-long": Case("python train.py long"),
    "exception-long-recorded": Case("python train.py long", env=RECORDED),
    "exception-with-misleading-words": Case("python train.py words"),
    "exception-with-misleading-words-recorded": Case("python train.py words", env=RECORDED),
    "exception-after-much-talk": Case("python train.py noise"),
    "exception-on-all-of-4-processes": Case("python train.py all", nodes=1, processes=4),
    "exception-on-all-of-4-processes-recorded": Case("python train.py all", nodes=1, processes=4, env=RECORDED),
    "sigkill": Case("python train.py signal 9"),
    "sigkill-recorded": Case("python train.py signal 9", env=RECORDED),
    "sigkill-from-outside": Case("python train.py wait", happens=send(signal.SIGKILL, 1, to_rank=True)),
    "sigterm-of-a-rank": Case("python train.py wait", happens=send(signal.SIGTERM, 1, to_rank=True)),
    "segfault": Case("python train.py segfault"),
    "segfault-recorded": Case("python train.py segfault", env=RECORDED),
    "abort": Case("python train.py abort"),
    "exit-137": Case("python train.py exit 137"),
    "exit-255": Case("python train.py exit 255"),
    "no-such-script": Case("python trian.py"),
    "no-such-module": Case("python -m trian"),
    "no-such-option": Case("torchrun --nnodez=2 train.py"),
    "setup-127": Case("python train.py wait", setup="echo preparing; prepare-data --now"),
    "setup-1": Case("python train.py wait", setup="false"),
    "container-137": Case("sh -c 'kill -9 $$'", nodes=1),
    "agent-sigterm": Case("python train.py wait", happens=send(signal.SIGTERM, 1)),
    "agent-sigterm-recorded": Case("python train.py wait", env=RECORDED, happens=send(signal.SIGTERM, 1)),
    "agent-sigint": Case("python train.py wait", happens=send(signal.SIGINT, 1)),
    "worker-0-lost-with-the-store": Case("python train.py wait", happens=lose(0)),
    "worker-1-lost": Case("python train.py wait", happens=lose(1)),
    "nobody-hosts-the-store": Case(
        "python train.py wait", absent=(0,), env={"PET_RDZV_CONF": "is_host=0,read_timeout=5"}
    ),
    "a-peer-never-comes": Case(
        "python train.py wait", absent=(1,), env={"PET_RDZV_CONF": "is_host=1,join_timeout=5,last_call_timeout=1"}
    ),
}


@contextmanager
def _workers(case: Case, torch: Path, directory: Path) -> Iterator[list[Worker]]:
    binaries = directory / "bin"
    binaries.mkdir()
    (binaries / "torchrun").write_text(TORCHRUN.format(python=sys.executable))
    (binaries / "torchrun").chmod(0o755)
    (binaries / "python").symlink_to(sys.executable)
    shutil.copy(HERE / "train.py", directory)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = []
    for index in range(case.nodes):
        if index in case.absent:
            continue
        message = directory / f"message-{index}"
        message.touch()
        environment = {
            "PATH": f"{binaries}:/usr/bin:/bin",
            "PYTHONPATH": str(torch),
            "HOME": "/tmp",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "ignore",  # of a torch without numpy
            "PET_NNODES": str(case.nodes),
            "PET_NPROC_PER_NODE": str(case.processes),
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}",
            "PET_RDZV_ID": "report",
            "PET_RDZV_CONF": f"is_host={int(index == 0)}",
            "PET_LOCAL_ADDR": f"127.0.0.{index + 1}",  # by which the ranks are ordered
            "PET_MAX_RESTARTS": "0",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "TORCHELASTIC_ERROR_FILE": str(message),
            "GLOO_SOCKET_IFNAME": "lo",
        } | case.env
        if environment["PET_RDZV_BACKEND"] == "static":
            environment |= {"PET_NODE_RANK": str(index), "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port)}
            del environment["PET_RDZV_CONF"]
        with (directory / f"log-{index}").open("wb") as log:
            process = subprocess.Popen(
                [word.replace("$$", "$") for word in argv(line=case.line, args=(), setup=case.setup)],  # as the kubelet
                env=environment,
                cwd=directory,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        workers.append(Worker(index, directory, process))
    try:
        yield workers
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                os.killpg(worker.process.pid, signal.SIGKILL)


def capture(name: str, torch: Path) -> None:
    """Runs a case and writes what each of its workers left, as `<case>/worker-<index>.exit-<code>.txt`."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        with _workers(case, torch, directory) as workers:
            if case.happens is not None:
                _wait_for_ranks(workers)
                case.happens(workers)
            codes = [worker.process.wait(TIMEOUT_S) for worker in workers]
        target = REPORTS / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for worker, code in zip(workers, codes, strict=True):
            seen = code if code >= 0 else 128 - code  # as a container runtime tells a signal
            message, log = (_neutral(path, directory, torch, worker.index) for path in (worker.message, worker.log))
            said = message[-MAX_FILE:] if message or seen == 0 else _tail(log)
            print(f"{name}: worker {worker.index} exit {seen}, {len(message)} bytes of message, {len(log)} of log")
            (target / f"worker-{worker.index}.exit-{seen}.txt").write_text(said.decode(errors="replace"))


def _wait_for_ranks(workers: list[Worker]) -> None:
    """Returns once every rank has done its first step."""
    deadline = time.monotonic() + TIMEOUT_S
    while not all("training" in worker.log.read_text(errors="replace") for worker in workers):
        if time.monotonic() > deadline:
            raise TimeoutError("the ranks did not meet")
        time.sleep(0.1)
    time.sleep(1)  # torchrun then watches its ranks: what is captured is how it takes a signal while it does


def _neutral(path: Path, directory: Path, torch: Path, index: int) -> bytes:
    """What was written, with the paths and the name of a pod."""
    text = path.read_bytes()
    for ours, theirs in (
        (str(torch), "/usr/local/lib/python3.11/site-packages"),
        (sysconfig.get_path("stdlib"), "/usr/local/lib/python3.11"),
        (f"{directory}/bin", "/usr/local/bin"),
        (str(Path(sys.executable).resolve()), "/usr/local/bin/python3.11"),
        (sys.executable, "/usr/local/bin/python"),
        (str(directory), "/app"),
        (f"host      : {socket.getfqdn()}", f"host      : job-{index}.job.team.svc.cluster.local"),
    ):
        text = text.replace(ours.encode(), theirs.encode())
    return text


def _tail(log: bytes) -> bytes:
    return b"".join(log.splitlines(keepends=True)[-MAX_LINES:])[-MAX_LOG:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch", type=Path)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    for name in arguments.cases:
        capture(name, arguments.torch)


if __name__ == "__main__":
    main()
