"""How a job ended."""

from dataclasses import dataclass

from torchctl.api.job import Failure

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job, reason and message as in its condition; `failure` is None where it succeeded."""

    reason: str
    message: str
    failure: Failure | None = None
