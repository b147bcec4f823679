"""The phases of a TorchrunJob: one word for a person, derived from the conditions and never the other way round."""

from enum import StrEnum

__all__ = ["TERMINAL", "Phase"]


class Phase(StrEnum):
    """Where a job is. `kubectl get trj` shows it."""

    PENDING = "Pending"
    SYNCING = "Syncing"
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})
"""A job in one of these is never run again."""
