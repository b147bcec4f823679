"""The errors of the SDK: one tree, each error one line that says what happened, to which object, and what to do next.

    ClientError
      UsageError        what was asked for makes no sense; nothing was sent
        ConfigError     the kubeconfig makes no sense
      JobFailed         the job failed, or ended otherwise than was waited for
      TimedOut          what was waited for did not come in time
      ClusterError      the cluster refused, or could not be asked
        Unreachable     no answer from the API server
        NotLoggedIn     the API server does not accept the login
        NotAllowed      the login lacks a right
        NotInstalled    the cluster does not have torchctl
        NotFound        the cluster does not have the object
        RequestRefused  anything else that the API server refuses

The command line gives each an exit status (`torchctl.cli.exits`).
"""

__all__ = [
    "ClientError",
    "ClusterError",
    "ConfigError",
    "JobFailed",
    "NotAllowed",
    "NotFound",
    "NotInstalled",
    "NotLoggedIn",
    "RequestRefused",
    "TimedOut",
    "Unreachable",
    "UsageError",
    "one_line",
    "printable",
    "visible",
]

MAX_LINE = 1000
"""The maximum number of characters that are quoted of what a server or a program said."""


class ClientError(Exception):
    """The base of all errors of the SDK.

    Args:
        what: What happened, and to which object; no period at its end.
        step: The next step for a person; empty if there is none.
    """

    def __init__(self, what: str, step: str = "") -> None:
        super().__init__(what, step)
        self.what = what
        self.step = step

    def __str__(self) -> str:
        return one_line(f"{self.what.rstrip('.')}. {self.step}" if self.step else self.what)


class UsageError(ClientError):
    """What was asked for makes no sense, so nothing was sent. Whoever asked can mend it."""


class ConfigError(UsageError):
    """The kubeconfig is missing or makes no sense."""


class JobFailed(ClientError):
    """The job failed, or ended otherwise than was waited for."""


class TimedOut(ClientError):
    """What was waited for did not come in time. The job goes on."""


class ClusterError(ClientError):
    """The cluster refused a request, or could not be asked."""


class Unreachable(ClusterError):
    """The API server, or the program in a pod that takes uploads, gave no answer, or could not give one now."""


class NotLoggedIn(ClusterError):
    """The API server does not accept the login, or there is none to be had."""


class NotAllowed(ClusterError):
    """The login is good and lacks a right."""


class NotInstalled(ClusterError):
    """The cluster does not have torchctl's kinds."""


class NotFound(ClusterError):
    """The cluster does not have the object, or its namespace."""


class RequestRefused(ClusterError):
    """The API server, or the program in a pod that takes uploads, refused a request for a reason of its own."""


def one_line(text: str) -> str:
    """Returns the text as one line without control characters, cut where a server said too much."""
    line = printable(text)
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..."


def printable(text: str) -> str:
    """Returns the text as one line of words."""
    return " ".join(visible(text).split())


def visible(text: str) -> str:
    """Returns a line with blanks instead of control characters: those of a stranger's must not reach a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)
