"""`kubectl torchrun` as a person runs it: a process of its own, in a directory, with a kubeconfig."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT
from subprocess import DEVNULL

import anyio

__all__ = ["Ended", "interrupted", "run"]


PROGRAM = (sys.executable, "-c", "from torchctl.cli.kubectl import main; main()")


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    status: int
    out: str
    err: str


async def run(*arguments: str, kubeconfig: Path, directory: Path, timeout_s: float = 120.0) -> Ended:
    """Runs the plugin to its end."""
    with anyio.fail_after(timeout_s):
        done = await anyio.run_process([*PROGRAM, *arguments], cwd=directory, env=_environment(kubeconfig), check=False)
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


async def interrupted(*arguments: str, after: str, kubeconfig: Path, directory: Path, timeout_s: float = 60.0) -> Ended:
    """Runs the plugin until it has said something on standard error, then presses Ctrl-C."""
    said = bytearray()
    with anyio.fail_after(timeout_s):
        async with await anyio.open_process(
            [*PROGRAM, *arguments], cwd=directory, env=_environment(kubeconfig), stdout=DEVNULL
        ) as process:
            assert process.stderr is not None
            async for chunk in process.stderr:
                said += chunk
                if after.encode() in said and process.returncode is None:
                    process.send_signal(SIGINT)
                    after = "\0never"
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, "", said.decode())


def _environment(kubeconfig: Path) -> dict[str, str]:
    remembered = str(kubeconfig.with_suffix(".cache"))
    return os.environ | {"KUBECONFIG": str(kubeconfig), "XDG_CACHE_HOME": remembered, "COLUMNS": "200"}
