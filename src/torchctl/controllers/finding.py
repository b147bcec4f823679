"""The results of one pass of a reconciler: findings, which become conditions, and refused writes. Pure."""

from dataclasses import dataclass

__all__ = ["Complaint", "Finding", "Refusal"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition before it is written: `ok` is its status; `warn` says that a person has to do something."""

    ok: bool
    reason: str
    message: str
    warn: bool = False


@dataclass(frozen=True, slots=True)
class Complaint:
    """A field of a child, as `.spec.containers[name="trainer"].image`, and what is wrong with it."""

    path: str
    wrong: str

    @property
    def is_missing(self) -> bool:
        """Whether the field should be there and is not."""
        return self.wrong.startswith("Required value")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write that was turned down: of which object, and reason and message as in a condition.

    Args:
        stays: Whether the object should have been deleted or ended. That is no step of a job, and holds nothing up.
        fields: What the API server says of single fields.
    """

    kind: str
    name: str
    reason: str
    message: str
    stays: bool = False
    fields: tuple[Complaint, ...] = ()
