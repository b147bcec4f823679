"""Errors of workspaces. Each message tells the person who can fix it what to do."""

__all__ = ["Refused", "Unexplained", "Unreachable", "WorkspaceError"]


class WorkspaceError(Exception):
    """A step failed. `message` names the object at fault, `next_step` the fix."""

    exit_code = 1

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(f"{message}. {next_step}".rstrip() if next_step else message)
        self.message = message
        self.next_step = next_step


class Refused(WorkspaceError):
    """The source, its contents or the request is not acceptable. The user must change it; a retry fails again."""


class Unreachable(WorkspaceError):
    """A server or marker was not there in time. The same request may work later (exit status EX_TEMPFAIL)."""

    exit_code = 75


class Unexplained(WorkspaceError):
    """The cause of the failure is unknown, so a few retries are worth it (exit status EX_SOFTWARE)."""

    exit_code = 70
