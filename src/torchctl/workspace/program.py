"""Runs a workspace command as a container: termination message, exit status and SIGTERM."""

import asyncio
import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from .errors import Refused, Unexplained, Unreachable, WorkspaceError
from .marker import Marker
from .urls import Redactor

__all__ = ["TERMINATION_LOG", "Command", "meaning", "run"]

TERMINATION_LOG = Path("/dev/termination-log")
_MAX_MESSAGE = 4000  # the kubelet keeps 4096 bytes
_STOPPED = 128 + signal.SIGTERM

Command = Callable[[], Awaitable[Marker | None]]


def run(step: str, main: Command, *, termination_log: Path, redact: Redactor) -> int:
    """Run a command to its end and report it.

    Args:
        step: first word of a failure's message.
        termination_log: gets the marker's JSON, or the failure; skipped when it does not exist.
        redact: removes secrets from everything that is written.

    Returns:
        0; 1 if it will fail again unless somebody changes something; 75 if it may work later; 143 after SIGTERM; 70 if
        the cause of the failure is unknown, a fault of this program included.
    """
    try:
        marker = asyncio.run(_until_sigterm(main))
    except asyncio.CancelledError:
        return _fail(f"{step}: stopped by SIGTERM", _STOPPED, termination_log, redact)
    except WorkspaceError as error:
        return _fail(f"{step}: {error}", error.exit_code, termination_log, redact)
    except OSError as error:
        meant = meaning(error)
        return _fail(f"{step}: {meant}", meant.exit_code, termination_log, redact)
    except Exception as error:
        print(redact(traceback.format_exc()), file=sys.stderr, flush=True)
        return _fail(f"{step}: {type(error).__name__}: {error}", Unexplained.exit_code, termination_log, redact)
    if marker is not None:
        report = redact(marker.report())
        print(report, flush=True)
        _write(termination_log, report)
    return 0


async def _until_sigterm(main: Command) -> Marker | None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await main()


def meaning(error: OSError) -> WorkspaceError:
    """Return what an error of the claim's file system means to the person who trains."""
    what = f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refused(f"the volume is full: {what}", next_step="Give volumes.workspace.size more room")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Refused(
            f"the volume cannot be written: {what}", next_step="Set fsGroup, or a storage class that honours it"
        )
    return Unreachable(f"a file operation failed: {what}")


def _fail(message: str, status: int, termination_log: Path, redact: Redactor) -> int:
    text = redact(message)
    print(text, file=sys.stderr, flush=True)
    _write(termination_log, text)
    return status


def _write(path: Path, text: str) -> None:
    """Write in place, because the kubelet mounted this very file. Outside of a container it does not exist: skip it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "replace")[:_MAX_MESSAGE])
