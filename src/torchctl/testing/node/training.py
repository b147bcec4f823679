"""What pods train with, made once and kept in the user's cache: an image with Python, and PyTorch beside it.

PyTorch with its CUDA libraries is 4.5 GB (and runs on a CPU, with gloo). As an image it would be unpacked for each
run; pods mount the directory instead, read-only. `python -m torchctl.testing.node.training` makes both ahead of time.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torchctl.testing.assets import Settings
from torchctl.testing.node.oci import write_image
from torchctl.testing.programs import architecture

__all__ = ["IMAGE", "ensure_image", "ensure_torch"]

IMAGE = "docker.io/torchctl/trainer:bookworm"
"""Its command waits for ever, so it serves as a pod's sandbox too."""

_SUITE = "bookworm"
_PYTHON = "3.11"  # the suite's
_TORCH = "2.13.0"
_MIRROR = "http://deb.debian.org/debian"
_NEWEST_GLIBC = 36  # the suite's, 2.36
_LEFT_OUT = ("./dev/*", "./proc/*", "./sys/*", "./var/cache/*", "./var/lib/apt/lists/*", "./usr/share/doc/*")


def ensure_image() -> Path:
    """An OCI archive of IMAGE: Debian with Python. Needs root, a minute and a Debian mirror, the first time.

    Raises:
        subprocess.CalledProcessError: debootstrap failed; what it printed is on stderr.
    """
    return _once(Settings.from_environment().cache / "images" / f"trainer-{_SUITE}-{architecture()}.tar", _make_image)


def ensure_torch() -> Path:
    """A directory for the PYTHONPATH of that image's Python. Needs PyPI, the first time.

    Raises:
        subprocess.CalledProcessError: pip failed; what it printed is on stderr.
    """
    name = f"{_TORCH}-cp{_PYTHON.replace('.', '')}-{platform.machine()}"
    return _once(Settings.from_environment().cache / "torch" / name, _install_torch)


def _make_image(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        root, layer = Path(scratch, "root"), Path(scratch, "layer.tar")
        options = ("--variant=minbase", "--include=python3,ca-certificates")
        _run("debootstrap", *options, _SUITE, str(root), _MIRROR)
        excluded = (f"--exclude={pattern}" for pattern in _LEFT_OUT)
        _run("tar", "--create", f"--file={layer}", f"--directory={root}", "--numeric-owner", *excluded, ".")
        config = {"Cmd": ["sleep", "infinity"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]}
        write_image(target, IMAGE, layer, config, architecture())


def _install_torch(target: Path) -> None:
    # For the image's Python and C library, whatever this machine has.
    platforms = (f"--platform=manylinux_2_{minor}_{platform.machine()}" for minor in range(_NEWEST_GLIBC, 4, -1))
    old = (f"--platform={name}_{platform.machine()}" for name in ("manylinux2014", "manylinux2010", "manylinux1"))
    options = ("--no-cache-dir", "--no-compile", "--quiet", "--only-binary=:all:", "--root-user-action=ignore")
    python = (f"--python-version={_PYTHON}", "--implementation=cp", *platforms, *old)
    _run(sys.executable, "-m", "pip", "install", *options, *python, f"--target={target}", f"torch=={_TORCH}")


def _once(path: Path, make: Callable[[Path], None]) -> Path:
    """Returns `path`, made completely or not at all, by one process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock(path.with_name(f".{path.name}.lock")):
        if not path.exists():
            print(f"torchctl: making {path}, once", file=sys.stderr, flush=True)
            unfinished = path.with_name(f".{path.name}.unfinished")
            _discard(unfinished)
            make(unfinished)
            os.rename(unfinished, path)
    return path


def _discard(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    print(ensure_image())
    print(ensure_torch())
