"""What one step of a job found: the stuff of a condition."""

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`ok` is the condition's status; `warn` says that a person has to do something."""

    ok: bool
    reason: str
    message: str
    warn: bool = False
