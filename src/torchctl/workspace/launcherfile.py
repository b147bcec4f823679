"""`torchctl workspace put-launcher`: copies the launcher to a volume, from which the trainer starts it."""

import os
from importlib import resources
from pathlib import Path

from .handout import check_directory

__all__ = ["NAME", "put_launcher"]

NAME = "launcher.py"


def put_launcher(target: Path) -> None:
    """Write the launcher for everybody to read; nobody ever sees half of it.

    Raises:
        Refused: there is no such directory.
    """
    check_directory(target)
    temporary = target / f".{NAME}.tmp"
    temporary.write_bytes((resources.files("torchctl.launcher") / NAME).read_bytes())
    temporary.chmod(0o555)
    os.replace(temporary, target / NAME)
