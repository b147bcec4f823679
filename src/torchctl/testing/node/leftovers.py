"""Removes what namespaces do not: a node's cgroups, and the traces of nodes whose process was killed."""

import os
import re
import shutil
import tempfile
import time
from pathlib import Path

__all__ = ["hierarchies", "make_cgroups", "new_directory", "remove_cgroups", "sweep", "traces"]

_CGROUPS = Path("/sys/fs/cgroup")
_NAME = "torchctl-node"


def new_directory() -> Path:
    """Makes a node's directory. Its name is also that of the node's cgroup, and contains the owner's process id."""
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}-{os.getpid()}-")).resolve()


def make_cgroups(name: str) -> None:
    """Makes a cgroup in every hierarchy, because the kubelet requires that its root exists."""
    for hierarchy in hierarchies():
        (hierarchy / name).mkdir()


def remove_cgroups(name: str, timeout_s: float = 10.0) -> None:
    """Removes a cgroup and those below it from every hierarchy, waiting for processes that are being killed.

    Raises:
        OSError: one still has processes after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    for top in _tops(name):
        for directory in sorted(top.glob("**/"), reverse=True):
            _remove(directory, deadline)


def traces(directory: Path) -> list[str]:
    """Lists traces of a node: its directory, its cgroups, processes that see its mounts or are in its cgroups."""
    found = [str(path) for path in (directory, *_tops(directory.name)) if path.exists()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(directory.name in (process / file).read_text() for file in ("mountinfo", "cgroup")):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended
            continue
    return found


def sweep() -> None:
    """Removes directories and cgroups of nodes whose process is gone."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_NAME}-*"):
        if _orphaned(directory.name) and (directory / "hold").exists():
            shutil.rmtree(directory, ignore_errors=True)
    for name in {top.name for top in _tops(f"{_NAME}-*")}:
        if _orphaned(name):
            remove_cgroups(name)


def _tops(pattern: str) -> list[Path]:
    return [top for hierarchy in hierarchies() for top in hierarchy.glob(pattern)]


def hierarchies() -> list[Path]:
    """Returns the roots of the cgroup hierarchies: one in version 2, one for each controller in version 1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [path for path in _CGROUPS.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]


def _remove(directory: Path, deadline: float) -> None:
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _orphaned(name: str) -> bool:
    found = re.match(rf"{_NAME}-(\d+)-", name)
    return found is not None and not Path("/proc", found.group(1)).exists()
