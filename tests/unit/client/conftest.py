"""What the tests of the client share."""

from pathlib import Path

import pytest


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    """A mounted claim, with the directory that mkfs.ext4 leaves in it."""
    root = tmp_path / "claim"
    (root / "lost+found").mkdir(parents=True)
    return root
