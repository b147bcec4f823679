"""Reads the file of `submit -f`: one TorchrunJob, as YAML or JSON."""

import sys
from pathlib import Path
from typing import Any

import yaml

from torchctl.client.errors import UsageError

__all__ = ["parse", "read"]

_MOST_BYTES = 3 * 2**20
"""An API server takes no larger object."""


def read(filename: str) -> dict[str, Any]:
    """Reads a file, or standard input for `-`.

    Raises:
        UsageError: It cannot be read, or is no object.
    """
    try:
        if filename == "-":
            return parse(sys.stdin.buffer.read(_MOST_BYTES + 1), "standard input")
        with Path(filename).open("rb") as file:
            return parse(file.read(_MOST_BYTES + 1), filename)
    except OSError as error:
        raise UsageError(f"{filename} cannot be read: {error.strerror}", "Name a file with a TorchrunJob.") from error


def parse(content: bytes, filename: str) -> dict[str, Any]:
    """Returns the one object in a file. Raises UsageError if there is not exactly one."""
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{filename} has more than {_MOST_BYTES >> 20} MiB", "Name a file with one TorchrunJob.")
    try:
        documents = [document for document in yaml.safe_load_all(content) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{filename} is no YAML: {error}", "Correct it.") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        step = "Submit one TorchrunJob at a time; kubectl apply takes several objects."
        raise UsageError(f"{filename} has {len(documents)} documents, or something else than an object", step)
    found: dict[str, Any] = documents[0]
    return found
