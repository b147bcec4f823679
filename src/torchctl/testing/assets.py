"""Finds the programs of the control plane under test."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Assets", "ensure"]


@dataclass(frozen=True, slots=True)
class Assets:
    """Programs in one directory."""

    directory: Path

    def path(self, name: str) -> Path:
        """Raises FileNotFoundError for a program that is not there."""
        path = self.directory / name
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such program")
        return path


def ensure() -> Assets:
    return Assets(Path(os.environ["TORCHCTL_ASSETS"]))
