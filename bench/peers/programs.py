"""The programs that are compared, and how each is made ready: built, or installed, once and outside the clone."""

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torchctl.testing.assets import Settings
from torchctl.testing.gobuild import build
from torchctl.testing.programs import Program

__all__ = ["PEERS", "Peer"]

HERE = Path(__file__).parent
GO = HERE / "controller-runtime"
KOPF = HERE / "kopf"


@dataclass(frozen=True, slots=True)
class Peer:
    """A program that is ready to run.

    Attributes:
        command: Its command line.
        environment: Variables besides KUBECONFIG.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def controller_runtime(namespace: str, workers: int) -> Peer:
    return Peer([str(_built()), f"--namespace={namespace}", f"--workers={workers}"])


def kopf(namespace: str, workers: int) -> Peer:
    command = [str(_installed() / "bin" / "kopf"), "run", "--standalone", f"--namespace={namespace}", "--quiet"]
    return Peer([*command, str(KOPF / "greetings.py")], {"PEER_WORKERS": str(workers)})


def torchctl(namespace: str, workers: int) -> Peer:
    options = ["--namespace", namespace, "--workers", str(workers)]
    return Peer([sys.executable, "-m", "bench.peers.ours", *options], {"PYTHONPATH": str(HERE.parents[1])})


PEERS = {"controller-runtime": controller_runtime, "kopf": kopf, "torchctl": torchctl}
"""Makes a peer ready for a namespace and a number of workers, by its name. Takes minutes the first time."""


def _built() -> Path:
    """Builds the peer in Go from its pinned module."""
    program = Program("controller-runtime-peer", str(GO), ".", "sigs.k8s.io/controller-runtime")
    settings = Settings.from_environment()
    with _cached(settings, "controller-runtime", GO / "go.mod", GO / "go.sum", GO / "main.go") as directory:
        target = directory / program.name
        if not target.exists():
            build(program, target, settings.cache, _say)
    return target


def _installed() -> Path:
    """Installs kopf from its pinned requirements into a virtual environment of its own."""
    requirements = KOPF / "requirements.txt"
    with _cached(Settings.from_environment(), "kopf", requirements) as directory:
        home, complete = directory / "venv", directory / "complete"
        if not complete.exists():
            _say(f"installing kopf into {home}")
            venv.create(home, clear=True, with_pip=True)
            pip = [str(home / "bin" / "pip"), "install", "--quiet", "--require-hashes"]
            subprocess.run([*pip, "--requirement", str(requirements)], check=True)
            complete.touch()
    return home


@contextmanager
def _cached(settings: Settings, name: str, *pins: Path) -> Iterator[Path]:
    """Yields a directory in the user's cache for what these files pin; one process at a time is in it."""
    digest = hashlib.sha256(b"".join(pin.read_bytes() for pin in pins)).hexdigest()[:12]
    directory = settings.cache / "peers" / f"{name}-{digest}"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def environment_of(peer: Peer, kubeconfig: Path) -> dict[str, str]:
    return {**os.environ, **peer.environment, "KUBECONFIG": str(kubeconfig)}
