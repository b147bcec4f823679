"""What one pass of a reconciler learns: findings, which become conditions, and writes that were refused. Pure."""

from dataclasses import dataclass

__all__ = ["Finding", "Refusal"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition before it is written: `ok` is its status; `warn` says that a person has to do something."""

    ok: bool
    reason: str
    message: str
    warn: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write that was turned down: of which object, and reason and message as in a condition.

    An object that `stays` should have been deleted or ended. That is no step of a job, and holds nothing up.
    """

    kind: str
    name: str
    reason: str
    message: str
    stays: bool = False
