"""What a reconciler found out about one condition of its object."""

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition before it is written: `ok` is its status; `warn` says that a person has to do something."""

    ok: bool
    reason: str
    message: str
    warn: bool = False
