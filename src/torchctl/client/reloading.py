"""Says whether a running job can take new code, and which of its workers have. Pure."""

import msgspec

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.client.changing import check_alive
from torchctl.client.errors import UsageError
from torchctl.client.views import JobView
from torchctl.client.wait import job_text
from torchctl.runtime.conditions import find, is_true
from torchctl.runtime.kinds import key_of

__all__ = ["Launcher", "Launchers", "check_reload", "has_code", "late", "said"]

_OFF = "Off"
_SHOWN = 8


class Launcher(msgspec.Struct, frozen=True):
    """A worker's launcher, as the job's companion knows it."""

    index: int
    state: str = ""
    revision: str = ""
    runs: str = ""
    behind: bool = False
    trouble: str = ""


class Launchers(msgspec.Struct, frozen=True):
    """The companion's answer: the revision that all shall have, and who has which."""

    revision: str = ""
    launchers: tuple[Launcher, ...] = ()


def has_code(job: JobView) -> bool:
    """Tells if a job has its first code, so that what is sent now is a later revision."""
    return is_true(job.status.conditions, JobCondition.WORKSPACE_READY)


def check_reload(job: JobView) -> None:
    """Raises UsageError if a job that has its code takes no other."""
    check_alive(job)
    accepted = find(job.status.conditions, JobCondition.ACCEPTED)
    if accepted is not None and accepted.status == "False" and accepted.reason == JobReason.IMPOSSIBLE_WORKSPACE:
        raise UsageError(f"{job_text(key_of(job))} cannot take new code: {accepted.message}")
    if job.spec.hot_reload == _OFF:
        raise UsageError(
            f"{job_text(key_of(job))} takes no new code: it was submitted without --hot-reload",
            "Submit it again under another name, with --hot-reload.",
        )


def late(found: Launchers, revision: str) -> bool:
    """Tells if a revision is not yet what all workers that the companion knows run."""
    return found.revision != revision or any(one.behind for one in found.launchers)


def said(found: Launchers) -> str:
    """Names the workers that do not have the revision that they shall have, and why as far as they have said."""
    behind = sorted((one for one in found.launchers if one.behind), key=lambda one: one.index)
    workers = [f"worker {one.index} ({one.trouble or one.state})" for one in behind]
    rest = len(workers) - _SHOWN
    return ", ".join(workers[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "") or f"they shall run {found.revision}"
