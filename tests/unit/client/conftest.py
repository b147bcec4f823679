"""What the tests of the client share."""

from pathlib import Path

import pytest


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    """A mounted claim, with the directory that mkfs.ext4 leaves in it."""
    root = tmp_path / "claim"
    (root / "lost+found").mkdir(parents=True)
    return root


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is remembered on this machine: nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "remembered"))
    return tmp_path / "remembered"
