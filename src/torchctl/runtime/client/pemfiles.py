"""Keeps certificates and keys that came as data in files, which is how TLS reads them, until the process ends."""

import atexit
import os
import tempfile

__all__ = ["keep"]

_kept: dict[bytes, str] = {}


def keep(content: bytes) -> str:
    """Returns the path of a file with this content, which only its owner may read. Equal contents share a file."""
    if not _kept:
        atexit.register(_remove)
    path = _kept.get(content)
    if path is None or not os.path.exists(path):
        descriptor, path = tempfile.mkstemp(prefix="torchctl-", suffix=".pem")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        _kept[content] = path
    return path


def _remove() -> None:
    while _kept:
        _, path = _kept.popitem()
        if os.path.exists(path):
            os.remove(path)
