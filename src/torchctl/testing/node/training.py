"""The software for training pods: an image with Python, and PyTorch in a directory of the user's cache.

PyTorch with its CUDA libraries is 4.5 GB (and runs on a CPU, with gloo). As an image it would be unpacked for each
run; pods mount the directory instead, read-only. `python -m torchctl.testing.node.training` fetches it ahead of time.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchctl.testing.assets import Settings
from torchctl.testing.node.oci import Image

__all__ = ["IMAGE", "TORCH_MOUNT", "ensure_torch"]

TORCH_MOUNT = "/opt/torch"
"""The path at which pods of IMAGE must mount `ensure_torch()`."""

_TORCHRUN = b"""\
#!/usr/bin/python3
import sys

from torch.distributed.run import main

sys.exit(main())
"""

IMAGE = Image(
    name="docker.io/torchctl/trainer:e2e",
    files={"usr/local/bin/torchrun": _TORCHRUN},
    links={"usr/local/bin/python": "/usr/bin/python3"},
    config={
        # It waits for ever, so it can also be the sandbox of a pod.
        "Cmd": ["sleep", "infinity"],
        "Env": [
            "PATH=/usr/local/bin:/usr/bin:/bin",
            f"PYTHONPATH={TORCH_MOUNT}",
            "HOME=/tmp",
            "PYTHONUNBUFFERED=1",
            "OMP_NUM_THREADS=1",
        ],
    },
)
"""A user's image: Python, torchrun, nothing of ours. Its base is Debian 12, see `_PYTHON` and `_GLIBC`."""

_TORCH = "2.13.0"
_PYTHON = "3.11"
_GLIBC = 36  # 2.36


def ensure_torch() -> Path:
    """Returns a directory with PyTorch for the PYTHONPATH of IMAGE. Needs PyPI and a minute the first time.

    Raises:
        subprocess.CalledProcessError: pip failed; its output is on stderr.
    """
    name = f"{_TORCH}-cp{_PYTHON.replace('.', '')}-{platform.machine()}"
    directory = Settings.from_environment().cache / "torch" / name
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _lock(directory.with_name(f".{name}.lock")):
        if not directory.exists():
            print(f"torchctl: installing PyTorch {_TORCH} into {directory}, once", file=sys.stderr, flush=True)
            unfinished = directory.with_name(f".{name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _install(unfinished)
            os.rename(unfinished, directory)
    return directory


def _install(target: Path) -> None:
    # For the image's Python and C library, whatever this machine has.
    machine = platform.machine()
    platforms = (f"--platform=manylinux_2_{minor}_{machine}" for minor in range(_GLIBC, 4, -1))
    old = (f"--platform={name}_{machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1"))
    # Without bytecode each process that imports torch takes seconds more; only the same Python can make it.
    bytecode = "--compile" if platform.python_version().startswith(f"{_PYTHON}.") else "--no-compile"
    options = ("--no-cache-dir", bytecode, "--quiet", "--only-binary=:all:", "--root-user-action=ignore")
    python = (f"--python-version={_PYTHON}", "--implementation=cp", *platforms, *old)
    command = (sys.executable, "-m", "pip", "install", *options, *python, f"--target={target}", f"torch=={_TORCH}")
    subprocess.run(command, check=True, stdout=sys.stderr)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    print(ensure_torch())
