"""Ends a process that cannot end by itself, because a reconcile is stuck in a thread."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["EXIT_STUCK", "LastResort", "last_resort"]

EXIT_STUCK = 70
"""EX_SOFTWARE: the exit status of a process that was ended this way."""


class LastResort:
    """A deadline for the end of the process, kept by a thread that needs no event loop.

    Nothing can cancel Python code that runs in a thread: `anyio.to_thread.run_sync` waits for it, and so does the
    interpreter at its exit. The lease is not given up meanwhile and expires by itself, so nothing is written twice.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def set(self, seconds: float) -> None:
        """Ends the process with `EXIT_STUCK` after so many seconds, unless `cancel` is called; sets only once."""
        if self._timer is None:
            self._timer = threading.Timer(seconds, self._end, (seconds,))
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, seconds: float) -> None:
        busy = ", ".join(thread.name for thread in threading.enumerate() if thread is not threading.current_thread())
        sys.stderr.write(f"torchctl: not stopped after {seconds:g} s, so the process is ended; its threads: {busy}\n")
        sys.stderr.flush()
        os._exit(EXIT_STUCK)


@contextmanager
def last_resort() -> Iterator[LastResort]:
    """Yields a deadline that is cancelled at the end of the block."""
    deadline = LastResort()
    try:
        yield deadline
    finally:
        deadline.cancel()
