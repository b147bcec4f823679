"""Says whether a running job can take new code, and which of its workers have. Pure."""

import msgspec

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.labels import REVISIONS
from torchctl.client.changing import check_alive
from torchctl.client.errors import UsageError, one_line
from torchctl.client.views import JobView
from torchctl.client.wait import job_text
from torchctl.runtime.conditions import find, is_true
from torchctl.runtime.kinds import key_of

__all__ = [
    "Launcher",
    "Launchers",
    "check_reload",
    "earlier",
    "had",
    "has_code",
    "is_replaced",
    "is_shared",
    "late",
    "said",
]

_MOST = 20
_OFF, _FILES = "Off", "Files"
_SHOWN, _SHOWN_CHARS = 8, 100


class Launcher(msgspec.Struct, frozen=True):
    """A worker's launcher, as the job's companion knows it."""

    index: int
    state: str = ""
    revision: str = ""
    runs: str = ""
    behind: bool = False
    trouble: str = ""


class Launchers(msgspec.Struct, frozen=True):
    """The companion's answer: the revision that all shall have, whether by a restart, and who has which.

    It is not whole for a moment after the companion has started, while not all workers have been heard of.
    """

    revision: str = ""
    launchers: tuple[Launcher, ...] = ()
    restart: bool = True
    whole: bool = True


def has_code(job: JobView) -> bool:
    """Tells if a job has its first code, so that what is sent now is a later revision."""
    return is_true(job.status.conditions, JobCondition.WORKSPACE_READY)


def check_reload(job: JobView, *, restart: bool) -> None:
    """Raises UsageError if a job that has its code takes no other, or cannot start its programs again with it."""
    check_alive(job)
    accepted = find(job.status.conditions, JobCondition.ACCEPTED)
    if accepted is not None and accepted.status == "False" and accepted.reason == JobReason.IMPOSSIBLE_WORKSPACE:
        raise UsageError(f"{job_text(key_of(job))} cannot take new code: {accepted.message}")
    if job.spec.hot_reload == _OFF:
        raise UsageError(
            f"{job_text(key_of(job))} takes no new code: it was submitted without --hot-reload",
            "Submit it again under another name, with --hot-reload.",
        )
    if restart and is_shared(job):
        raise UsageError(
            f"{job_text(key_of(job))} starts no program again with new code: its workers share one tree, which changes "
            "in pieces (hotReload Files)",
            "Add --no-restart: the files change, and programs that run go on with what they have loaded.",
        )


def is_shared(job: JobView) -> bool:
    """Tells if the workers have the job's workspace itself mounted, so that they have new code at once."""
    return job.spec.hot_reload == _FILES


def had(job: JobView, revision: str = "") -> list[str]:
    """Returns the revisions that a job has had, the newest last, with one that is sent now."""
    noted = job.metadata.annotations.get(REVISIONS, "").split()
    first = job.status.workspace.digest if job.status.workspace is not None else ""
    every = [*(noted or [first] * bool(first)), *([revision] if revision else [])]
    return [one for index, one in enumerate(every) if one not in every[index + 1 :]][-_MOST:]


def earlier(job: JobView, wanted: str = "") -> str:
    """Returns the revision before the newest one, or the one whose beginning is `wanted`, which may be the newest.

    Raises:
        UsageError: There is none, or several begin so.
    """
    every = had(job)
    before = every[:-1]
    found = [
        one
        for one in (every if wanted else before)
        if one.removeprefix("sha256:").startswith(wanted.removeprefix("sha256:"))
    ]
    if not found or (wanted and len(found) > 1):
        known = ", ".join(one.removeprefix("sha256:")[:12] for one in before) or "none"
        what = "several earlier revisions" if found else "no earlier revision"
        raise UsageError(f"{job_text(key_of(job))} has {what} {wanted}".rstrip(), f"Those that it has had: {known}.")
    return found[-1]


def is_replaced(found: Launchers, revision: str) -> bool:
    """Tells if the job has another revision than the one that was written into its spec."""
    return found.revision not in ("", revision)


def late(found: Launchers, revision: str) -> bool:
    """Tells if a revision is not yet what all workers that the companion knows run."""
    return found.revision != revision or not found.whole or any(one.behind for one in found.launchers)


def said(found: Launchers) -> str:
    """Names the workers that do not have the revision that they shall have, and why as far as they have said."""
    behind = sorted((one for one in found.launchers if one.behind), key=lambda one: one.index)
    workers = [f"worker {one.index} ({one_line(one.trouble or one.state)[:_SHOWN_CHARS]})" for one in behind]
    rest = len(workers) - _SHOWN
    if not workers:
        return (
            f"they shall run {found.revision}" if found.whole else "the companion has just started, and asks them all"
        )
    return ", ".join(workers[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
