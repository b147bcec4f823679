"""What can go wrong with a workspace, said so that the person who can fix it knows what to do."""

__all__ = ["Refused", "Unexplained", "Unreachable", "WorkspaceError"]


class WorkspaceError(Exception):
    """A step failed. `message` names the object at fault, `next_step` says what to do about it."""

    exit_code = 1

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(f"{message}. {next_step}".rstrip() if next_step else message)
        self.message = message
        self.next_step = next_step


class Refused(WorkspaceError):
    """The source, its contents or the request is not acceptable: the user changes it; a retry fails again."""


class Unreachable(WorkspaceError):
    """A server, a marker or a deadline was missed: the same request may work later (exit status EX_TEMPFAIL)."""

    exit_code = 75


class Unexplained(WorkspaceError):
    """Nobody knows what it means, so that a few more tries are worth it (exit status EX_SOFTWARE)."""

    exit_code = 70
