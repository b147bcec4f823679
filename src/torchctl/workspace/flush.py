"""Brings what was written to the disk."""

import ctypes
import os
from pathlib import Path

__all__ = ["flush_directory", "flush_filesystem", "start_flush"]

_SYNC_FILE_RANGE_WRITE = 2


def flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_filesystem(root: Path) -> None:
    """Flush the claim with syncfs(2): one call for any number of files, without other file systems."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs failed", str(root))
    finally:
        os.close(descriptor)


def start_flush(descriptor: int) -> None:
    """Let the kernel begin to write a file to the disk (Linux); nobody waits for it, and nothing is promised."""
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call:
        call(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)
