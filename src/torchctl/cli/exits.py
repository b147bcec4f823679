"""Exit statuses, and the one place where an error becomes a line on standard error and a status."""

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Self

import click

__all__ = ["Exit", "ended", "farewell", "is_verbose", "lenient", "verbosity", "while_read"]


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Exit(IntEnum):
    """The exit statuses of all commands for people, each with its meaning."""

    meaning: str

    def __new__(cls, status: int, meaning: str) -> Self:
        member = int.__new__(cls, status)
        member._value_ = status
        member.meaning = meaning
        return member

    DONE = 0, "Done."
    JOB_FAILED = 1, "The job that was waited for or followed failed, or ended otherwise than was waited for."
    USAGE = 2, "The command line or the kubeconfig makes no sense. Nothing was sent."
    CLUSTER = 3, "The cluster refused, or could not be asked."
    NOT_FOUND = 4, "The job, queue or namespace does not exist."
    TIMED_OUT = 5, "What was waited for did not come in time. The job goes on."
    OUTPUT = 74, "The output cannot be written, as on a full disk."
    DEFECT = 70, "A defect of this program; `-v` shows where."
    INTERRUPTED = 130, "Ctrl-C. The job goes on."
    BROKEN_PIPE = 141, "Whoever read the output does not read on."


class _State:
    """What a command has said of itself, for the line that ends it."""

    verbosity = 0
    farewell = ""


_state = _State()


def verbosity(level: int) -> None:
    """Sets how much is said of an error: 0 one line, 1 and more also its causes, for a defect a traceback."""
    _state.verbosity = max(level, _state.verbosity)


def is_verbose() -> bool:
    return _state.verbosity > 0


def farewell(text: str) -> None:
    """Sets the line that follows a Ctrl-C: what goes on, and how to come back to it."""
    _state.farewell = text


def ended(main: Callable[[], Any]) -> int:
    """Runs a program and returns its exit status; says on standard error why it did not succeed."""
    _state.verbosity, _state.farewell = 0, ""
    try:
        returned = main()
    except (KeyboardInterrupt, click.Abort):
        _say(_state.farewell or "Interrupted.")
        return Exit.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        _say(f"Error: {_line(error)}")
        return error.exit_code
    except Exception as error:
        return _explained(_only(error))
    return returned if isinstance(returned, int) else Exit.DONE


def lenient() -> None:
    """Lets the output have text that its encoding has no characters for: `\\u65e5` stands for them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def while_read() -> Iterator[None]:
    """Ends the process quietly if nobody reads its output any more, as in `torchctl list | head -1`."""
    try:
        yield
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(Exit.BROKEN_PIPE) from None


def _drop_output() -> None:
    """Writes what is left of the output nowhere; else Python complains once more when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: BaseException) -> int:
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        # Whoever writes a file of its own says so in an error of its own.
        _drop_output()
        _say(f"Error: the output cannot be written: {error.strerror}. Write it to another place, or make room.")
        return Exit.OUTPUT
    # Imported here, because a command that succeeds does not need them.
    from torchctl.client import errors
    from torchctl.client.refusals import explain
    from torchctl.runtime.client.errors import ApiError

    if isinstance(error, ApiError):
        error = explain(error, "a request")
    if not isinstance(error, errors.ClientError):
        return _defect(error)
    _say(f"Error: {error}")
    if _state.verbosity:
        _say_causes(error)
    statuses = {
        errors.JobFailed: Exit.JOB_FAILED,
        errors.UsageError: Exit.USAGE,
        errors.NotFound: Exit.NOT_FOUND,
        errors.TimedOut: Exit.TIMED_OUT,
        errors.ClusterError: Exit.CLUSTER,
    }
    return next((status for kind, status in statuses.items() if isinstance(error, kind)), Exit.DEFECT)


def _line(error: click.ClickException) -> str:
    """Returns what is wrong with the command line, and where its options are told."""
    message = " ".join(error.format_message().split())
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{context.command_path} --help`."


def _defect(error: BaseException) -> int:
    if _state.verbosity:
        import traceback

        _say("".join(traceback.format_exception(error)).rstrip())
    _say(
        f"Error: a defect of torchctl: {type(error).__name__}: {error}. Run it again with -v, and report what it says."
    )
    return Exit.DEFECT


def _say_causes(error: BaseException) -> None:
    cause = error.__cause__
    while cause is not None:
        _say(f"  because of {type(cause).__name__}: {cause}")
        cause = cause.__cause__


def _only(error: BaseException) -> BaseException:
    """Returns the first error of a group, which is what the others follow from."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _say(line: str) -> None:
    click.echo(line, err=True)
