"""Which bound keeps a gang out, and what it has left."""

from enum import StrEnum
from typing import NamedTuple

__all__ = ["QuotaShortage", "Scope"]


class Scope(StrEnum):
    """Whose bound it is, or why nothing of it is given away."""

    NODES_PER_JOB = "maxNodes"
    QUEUE = "queue"
    COHORT = "cohort"
    NAMESPACE = "namespace"
    KEPT = "kept"
    UNKNOWN = "unknown"
    UNNAMED = "unnamed"


class QuotaShortage(NamedTuple):
    """A bound that keeps a gang out.

    Args:
        scope: Whose bound it is, and `name` which one's.
        resource: What it counts.
        asked: What the gang takes of it.
        left: What there is.
        kept_for: The gang that what is there is kept for; empty: it is taken.
        never: Whether the gang takes more than the bound itself, or cannot be counted.
        containers: Those that do not name the resource, which the bound demands.
    """

    scope: Scope
    name: str
    resource: str
    asked: int
    left: int
    kept_for: str = ""
    never: bool = False
    containers: str = ""
