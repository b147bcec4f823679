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


def start_flush(descriptor: int, begin: int = 0, size: int = 0) -> None:
    """Let the kernel begin to write a file to the disk (Linux); nobody waits for it, and nothing is promised.

    Args:
        begin: where in the file what is written begins.
        size: bytes of it; 0: all that follows.
    """
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call:
        call(descriptor, ctypes.c_int64(begin), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)
