"""Defines the outcome of a job: success or failure, with reason and message."""

from dataclasses import dataclass

from torchctl.api.job import Failure

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job, with reason and message as in its condition; `failure` is None if it succeeded."""

    reason: str
    message: str
    failure: Failure | None = None
