"""Defines the outcome of a job: success or failure, with reason and message, and what a failure is in words."""

from collections.abc import Iterable
from dataclasses import dataclass

from torchctl.api.errorline import error_line
from torchctl.api.job import Failure
from torchctl.api.kube import Pod
from torchctl.controllers.job.pods import shorten

__all__ = ["Outcome", "log_hint", "sentence"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job, with reason and message as in its condition; `failure` is None if it succeeded."""

    reason: str
    message: str
    failure: Failure | None = None


def sentence(failure: Failure) -> str:
    """A failure as a person reads it."""
    rank = f", rank {failure.rank}" if failure.rank is not None else ""
    where = f" on node {failure.node}" if failure.node else ""
    said = error_line(failure.message)
    if not failure.pod:
        return said
    return f"pod {failure.pod}{where}{rank} failed {_how(failure)}" + (f": {shorten(said)}" if said else "")


def log_hint(pods: Iterable[Pod], failure: Failure) -> str:
    """Names the command that shows the log of the pod that failed, if the pod is there and stays."""
    there = {pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is None}
    return f"; see `kubectl logs {failure.pod}`" if failure.pod in there else ""


def _how(failure: Failure) -> str:
    """`with exit code 137 (OOMKilled)`: of code and reason what is known and says something."""
    if failure.exit_code is None:
        return f"({failure.reason})"
    named = "" if failure.reason in ("", "Error") else f" ({failure.reason})"
    return f"with exit code {failure.exit_code}{named}"
