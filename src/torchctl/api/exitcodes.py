"""The meaning of exit codes, and whether they are retried: the table behind `restartPolicy: ExitCode`.

docs/reference is made from it. The code is that of the rank that failed first. If signal n ended a program, a shell
gives 128 + n and torchrun -n; both are the same here.
"""

from dataclasses import dataclass

from torchctl.api.words import Word

__all__ = ["EXIT_CODES", "OTHER", "OTHER_SIGNAL", "ExitClass", "ExitCode", "exit_code"]

_SIGNALS = range(129, 193)
"""128 + n for each signal of Linux, real-time ones included."""


class ExitClass(Word):
    """Whether a failure is tried again."""

    PERMANENT = "Permanent", "The same program would fail again: the job fails."
    RETRIED = "Retried", "Somebody or something else ended the program: the job starts over."


@dataclass(frozen=True, slots=True)
class ExitCode:
    """One row of the table. A row whose `code` is None is about all codes that have no row."""

    code: int | None
    class_: ExitClass
    meaning: str

    @property
    def signal(self) -> int | None:
        """The signal that ended the program; None for a code of its own."""
        return self.code - 128 if self.code in _SIGNALS and self.code is not None else None


_PERMANENT, _RETRIED = ExitClass.PERMANENT, ExitClass.RETRIED

EXIT_CODES = (
    ExitCode(1, _PERMANENT, "An exception that nobody caught, or exit 1."),
    ExitCode(2, _PERMANENT, "Wrong arguments, or a script that Python or the shell does not find."),
    ExitCode(126, _PERMANENT, "A program that is not executable."),
    ExitCode(127, _PERMANENT, "A program that does not exist."),
    ExitCode(128, _PERMANENT, "An exit code that is none, or a container that could not be started."),
    ExitCode(130, _RETRIED, "SIGINT: interrupted from outside."),
    ExitCode(137, _RETRIED, "SIGKILL: out of memory, or not ended within its grace period."),
    ExitCode(138, _RETRIED, "SIGUSR1: the program's own wish to start over."),
    ExitCode(139, _PERMANENT, "SIGSEGV: the program or a library of it read memory that is not its own."),
    ExitCode(143, _RETRIED, "SIGTERM: told to stop, as in an eviction or a preemption."),
)
"""The codes that mean something by themselves."""

OTHER_SIGNAL = ExitCode(
    None,
    _RETRIED,
    "Any other signal, such as SIGABRT (134), with which NCCL's watchdog ends a rank whose peer is gone.",
)
OTHER = ExitCode(None, _PERMANENT, "Any other code: the program's own word.")

_BY_CODE = {row.code: row for row in EXIT_CODES}


def exit_code(code: int) -> ExitCode:
    """Returns the row for a code. A negative code is a signal, as torchrun gives it."""
    number = 128 - code if code < 0 else code
    return _BY_CODE.get(number) or (OTHER_SIGNAL if number in _SIGNALS else OTHER)
