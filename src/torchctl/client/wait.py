"""Says what a job is waited for, and whether it is so: pure. `Goal.parse` reads what `wait --for` takes."""

from dataclasses import dataclass
from enum import Enum

from torchctl.api.conditions import JobCondition
from torchctl.api.phases import TERMINAL, Phase
from torchctl.client.errors import JobFailed, NotFound, UsageError
from torchctl.client.views import JobView
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Key

__all__ = ["FINISHED", "GOALS", "GONE", "Goal", "Progress", "conclude", "job_text", "judge"]

FINISHED = "finished"
GONE = "deleted"
_KUBECTLS_GONE = "delete"
"""The same as `kubectl wait` has it."""
GOALS = (FINISHED, *(phase.value for phase in Phase), GONE)
"""The words that `wait --for` takes, besides `condition=TYPE` and `condition=TYPE=STATUS`."""


class Progress(Enum):
    """Where a job is on the way to a goal."""

    REACHED = "reached"
    WAITING = "waiting"
    MISSED = "missed"
    """It ended in another way, and never gets there."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a job is waited for: a phase, one of the words above, or a condition with a status.

    Attributes:
        word: A phase, `finished` or `deleted`; empty for a condition.
        condition: Type of a condition.
        status: The status that it shall have.
    """

    word: str = ""
    condition: str = ""
    status: str = "True"

    @classmethod
    def parse(cls, text: str) -> "Goal":
        """Reads a goal as a person writes it; the case of letters does not matter.

        Raises:
            UsageError: There is no such goal.
        """
        kind, equals, rest = text.partition("=")
        if equals and kind.lower() in ("condition", "phase"):
            if kind.lower() == "phase":
                return cls(word=_member(rest, tuple(Phase), "phase"))
            type_, _, status = rest.partition("=")
            return cls(
                condition=_member(type_, tuple(JobCondition), "condition"),
                status=_member(status or "True", ("True", "False", "Unknown"), "status"),
            )
        return cls(word=GONE if text.lower() == _KUBECTLS_GONE else _member(text, GOALS, "goal"))

    def __str__(self) -> str:
        return self.word or f"condition {self.condition}={self.status}"


def judge(goal: Goal, job: JobView | None) -> Progress:
    """Judges a job as it is now; None is a job that does not exist any more."""
    if job is None:
        return Progress.REACHED if goal.word == GONE else Progress.MISSED
    if _is_reached(goal, job):
        return Progress.REACHED
    if goal.word != GONE and job.status.phase in TERMINAL:
        return Progress.MISSED
    return Progress.WAITING


def conclude(goal: Goal, key: Key, job: JobView | None) -> None:
    """Raises unless a job that is waited for no longer ended well.

    Raises:
        NotFound: It was deleted.
        JobFailed: It never gets to the goal; also if the goal was its end, and it failed.
    """
    if job is None and goal.word != GONE:
        raise NotFound(f"{job_text(key)} was deleted before it was {goal}")
    if job is None or judge(goal, job) is Progress.WAITING:
        return
    if judge(goal, job) is Progress.MISSED or (goal.word == FINISHED and job.status.phase == Phase.FAILED):
        raise JobFailed(_ending(goal, key, job), f"See `kubectl torchrun status {key.name} -n {key.namespace}`.")


def job_text(key: Key) -> str:
    """Names a job in a message."""
    return f"TorchrunJob {key.name} in namespace {key.namespace}"


def _ending(goal: Goal, key: Key, job: JobView) -> str:
    failure = job.status.failure
    if job.status.phase != Phase.FAILED:
        return f"{job_text(key)} is {job.status.phase} and will not be {goal}"
    if failure is None or not failure.pod:
        return f"{job_text(key)} has failed"
    rank = "" if failure.rank is None else f"rank {failure.rank} in "
    code = "" if failure.exit_code is None else f" with exit code {failure.exit_code}"
    return f"{job_text(key)} has failed: {rank}pod {failure.pod} ended{code} ({failure.reason})"


def _is_reached(goal: Goal, job: JobView) -> bool:
    phase = job.status.phase
    if goal.condition:
        condition = find(job.status.conditions, goal.condition)
        return condition is not None and condition.status == goal.status
    if goal.word == FINISHED:
        return phase in TERMINAL
    if goal.word == Phase.RUNNING:
        # A job that has succeeded was running, even if nobody looked at the time.
        return phase in (Phase.RUNNING, Phase.SUCCEEDED)
    return phase == goal.word


def _member(text: str, known: tuple[str, ...], what: str) -> str:
    found = next((word for word in known if word.lower() == text.lower()), None)
    if found is None:
        raise UsageError(f"there is no {what} {text!r}", f"Known: {', '.join(known)}.")
    return str(found)
