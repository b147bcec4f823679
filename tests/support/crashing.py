"""Crashes of a program at one of its calls to the file system."""

import os
from collections.abc import Callable

import pytest

__all__ = ["Crash", "crash_at"]

CALLS = ("rename", "replace", "fsync", "unlink", "rmdir", "mkdir")


class Crash(Exception):
    """The machine stops here."""


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int, how: Exception | None = None) -> Callable[[], int]:
    """Let file-system calls through until `step`, then crash at each one; returns how many there were."""
    count = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal count
            count += 1
            if count > step:
                raise how or Crash
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return lambda: count
