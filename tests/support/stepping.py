"""Makes a program ask for leave before each step that outlives it: a change on a disk, a connection, another process.

Whoever is asked may kill the program instead, exactly there. Also a program, for one that is started without any
modules of ours; standard library only, and any Python that can run the launcher:

    python -I -S stepping.py SOCKET ROOT program.py ARGUMENT...
"""

from __future__ import annotations

import os
import re
import runpy
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["ask_for_leave"]

PATHS = {
    "os.chmod": 2,
    "os.link": 3,
    "os.mkdir": 2,
    "os.remove": 1,
    "os.rename": 3,
    "os.rmdir": 1,
    "os.symlink": 2,
    "os.truncate": None,
    "os.utime": 3,
}
"""Audit events that change a disk, and which of their arguments is the directory's descriptor."""
SECOND = ("os.link", "os.rename", "os.symlink")
"""Those whose second argument is the path that comes into being."""
OTHERS = ("os.fork", "os.kill", "socket.connect")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
RANDOM = re.compile(r"[0-9a-f]{8,}|\d{6,}")


class _Asker:
    """Asks over one connection for each process; a process that was forked makes its own."""

    def __init__(self, address: str, root: str) -> None:
        self._address, self._root, self._first = address, os.path.realpath(root), os.getpid()
        self._renew()

    def _renew(self) -> None:
        self._pid, self._lock, self._busy = os.getpid(), threading.Lock(), threading.local()
        self._connection: socket.socket | None = None

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook."""
        if event in PATHS or event == "open" or event in OTHERS:
            if os.getpid() != self._pid:
                self._renew()
            if not getattr(self._busy, "now", False):
                self._busy.now = True
                try:
                    name = self._name(event, arguments)
                    if name:
                        self._ask(name)
                finally:
                    self._busy.now = False

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose first argument is a descriptor, and of which no audit event tells."""

        def call(descriptor: int, *arguments: object) -> Any:
            if os.getpid() != self._pid:
                self._renew()
            self._busy.now = True
            try:
                path = self._path(descriptor, None)
                if path:
                    self._ask(f"{name} {path}")
            finally:
                self._busy.now = False
            return function(descriptor, *arguments)

        return call

    def _name(self, event: str, arguments: tuple[Any, ...]) -> str:
        if event in OTHERS:
            return f"os.kill {arguments[1]}" if event == "os.kill" else event
        if event == "open":
            path = self._path(arguments[0], None) if (arguments[2] or 0) & WRITING else ""
        else:
            place = PATHS[event]
            path = self._path(arguments[event in SECOND], arguments[place] if place is not None else None)
        return f"{event} {path}" if path else ""

    def _path(self, path: Any, directory: Any) -> str:
        """The path below the root, without what is random in it; empty if it is none of ours."""
        try:
            if isinstance(path, int):
                whole = os.readlink(f"/proc/self/fd/{path}")
                if whole.startswith("pipe:"):
                    return "pipe"
            else:
                whole = os.fsdecode(path)
                if isinstance(directory, int) and directory >= 0 and not os.path.isabs(whole):
                    whole = os.path.join(os.readlink(f"/proc/self/fd/{directory}"), whole)
        except (OSError, TypeError):
            return ""
        whole = os.path.abspath(whole)
        return RANDOM.sub("*", os.path.relpath(whole, self._root)) if whole.startswith(self._root + os.sep) else ""

    def _ask(self, name: str) -> None:
        with self._lock, suppress(OSError):  # without anybody to ask it goes on
            if os.getpid() != self._first:
                name = f"forked: {name}"
            if self._connection is None:
                self._connection = socket.socket(socket.AF_UNIX)
                self._connection.connect("\0" + self._address)
            self._connection.sendall(name.encode("utf-8", "backslashreplace") + b"\n")
            self._connection.recv(1)


def ask_for_leave(address: str, root: str) -> None:
    """Makes this process and those that it forks ask before each step.

    Args:
        address: of an abstract unix socket.
        root: only changes below this directory are steps.
    """
    asker = _Asker(address, root)
    sys.addaudithook(asker.hear)
    os.write = asker.watched("os.write", os.write)
    os.pwrite = asker.watched("os.pwrite", os.pwrite)
    os.fsync = asker.watched("os.fsync", os.fsync)


if __name__ == "__main__":
    ask_for_leave(sys.argv[1], sys.argv[2])
    sys.argv = sys.argv[3:]
    runpy.run_path(sys.argv[0], run_name="__main__")
