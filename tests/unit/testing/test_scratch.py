"""What a killed process leaves in the temporary directory is gone once the next one starts."""

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest

from torchctl.testing.scratch import Scratch

_PREFIX = "torchctl-scratch-test-"


@pytest.fixture(autouse=True)
def _own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_killed_processs_directory_is_swept_by_the_next(tmp_path: Path) -> None:
    program = (
        f"import os, signal, tempfile; tempfile.tempdir = {str(tmp_path)!r}\n"
        "from torchctl.testing.scratch import Scratch\n"
        f"print(Scratch({_PREFIX!r}).path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    left = Path(done.stdout.strip())
    assert left.is_dir()
    Scratch(_PREFIX).remove()
    assert list(tmp_path.iterdir()) == []


def test_one_in_use_and_one_that_is_kept_stay() -> None:
    used, kept = Scratch(_PREFIX), Scratch(_PREFIX)
    (kept.path / "log").touch()
    kept.keep()
    Scratch(_PREFIX).remove()
    assert used.path.is_dir()
    assert (kept.path / "log").exists()
    used.remove()
    assert not used.path.exists()


def test_directory_that_is_being_made_is_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, nested = fcntl.flock, False

    def sweep_just_before(file: IO[bytes], operation: int) -> None:
        nonlocal nested
        if not nested:
            nested = True
            Scratch(_PREFIX).remove()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_just_before)
    made = Scratch(_PREFIX)
    assert made.path.is_dir()
    made.remove()
