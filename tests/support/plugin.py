"""`kubectl torchrun` as a person runs it: a process of its own, in a directory, with a kubeconfig."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio

__all__ = ["Ended", "run"]


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    status: int
    out: str
    err: str


async def run(*arguments: str, kubeconfig: Path, directory: Path, timeout_s: float = 120.0) -> Ended:
    """Runs the plugin to its end."""
    command = [sys.executable, "-c", "from torchctl.cli.kubectl import main; main()", *arguments]
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "COLUMNS": "200"}
    with anyio.fail_after(timeout_s):
        done = await anyio.run_process(command, cwd=directory, env=environment, check=False)
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
