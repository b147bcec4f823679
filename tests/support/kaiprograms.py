"""KAI-Scheduler's own programs against a control plane. Who has their source builds them; nothing of them is here."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from clusters import established

from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.ports import reserve
from torchctl.testing.process import ManagedProcess

__all__ = ["KAI_BIN", "MISSING", "Kai", "running_kai"]

KAI_BIN = "TORCHCTL_KAI_BIN"
"""Environment variable: a directory with KAI's programs, and in `crds` the CRDs of the same version."""

NEEDED = ("scheduler", "binder", "podgrouper", "queuecontroller", "podgroupcontroller")
UNREACHABLE = "/nonexistent"


def _directory() -> Path:
    return Path(os.environ.get(KAI_BIN) or UNREACHABLE)


def _missing() -> str:
    if not os.environ.get(KAI_BIN):
        return f"{KAI_BIN} is not set: docs/testing.md says how to run KAI's own programs"
    lacking = [name for name in (*NEEDED, "crds") if not (_directory() / name).exists()]
    return f"{_directory()} has no {', '.join(lacking)}" if lacking else ""


MISSING = _missing()
"""Why KAI's programs cannot be run here; empty where they can."""


def _arguments(ports: tuple[int, ...]) -> Mapping[str, tuple[str, ...]]:
    """Of each program. They share no addresses, and serve no webhooks, which would need certificates."""
    listen, plugins = ports
    quiet = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
    return {
        "scheduler": (f"--listen-address=127.0.0.1:{listen}", f"--plugin-server-port={plugins}"),
        "binder": quiet,
        "podgrouper": quiet,
        "queuecontroller": ("--enable-webhook=false", "--metrics-listen-address=0"),
        "podgroupcontroller": ("--enable-podgroup-webhook=false", *quiet),
    }


class Kai:
    """The programs while they run. What they say is in `logs`."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._processes: dict[str, ManagedProcess] = {}
        with reserve(2) as ports:
            self._arguments = _arguments(ports)

    @property
    def logs(self) -> Path:
        return self._cluster.logs

    def start(self, program: str, kubeconfig: Path) -> None:
        """Starts a program with the rights that the kubeconfig gives it."""
        argv = [str(_directory() / program), *self._arguments[program]]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        log = self.logs / f"kai-{program}.log"
        process = ManagedProcess(f"kai-{program}", argv, log, environment)
        process.start()
        self._processes[program] = process

    def check(self) -> None:
        """Raises AssertionError with the end of the log of a program that has ended by itself."""
        for process in self._processes.values():
            assert process.running, f"{process.name} ended with status {process.returncode}:\n{process.tail(30)}"

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()

    @contextmanager
    def podgrouper(self, kubeconfig: Path) -> Iterator[None]:
        """Runs the podgrouper during the block."""
        self.start("podgrouper", kubeconfig)
        try:
            yield
            self.check()
        finally:
            self._processes.pop("podgrouper").kill()


@asynccontextmanager
async def running_kai(cluster: ControlPlane) -> AsyncIterator[Kai]:
    """All programs but the podgrouper, as administrator; KAI's kinds and priorities are installed first."""
    await cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(_directory() / "crds"))
    await established(cluster)
    kai = Kai(cluster)
    try:
        for program in NEEDED:
            if program != "podgrouper":
                kai.start(program, cluster.admin_kubeconfig)
        yield kai
        kai.check()
    finally:
        kai.kill()
