"""The phases of a TorchrunJob: one word for a person, derived from the conditions and never the other way round."""

from enum import StrEnum
from typing import Self

__all__ = ["TERMINAL", "Phase"]


class Phase(StrEnum):
    """Where a job is. `kubectl get trj` shows it."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    PENDING = (
        "Pending",
        "The spec cannot be run, the queue is missing, or other jobs come first: Accepted, QueueFound and "
        "DependenciesMet say which.",
    )
    SYNCING = "Syncing", "The workspace is being filled; WorkspaceReady says how far it is."
    QUEUED = "Queued", "The job waits for the gang scheduler; Admitted has its reasons."
    STARTING = "Starting", "The workers are placed and start; WorkersReady says what keeps them."
    RUNNING = "Running", "All workers run."
    RESTARTING = "Restarting", "An attempt was lost and the next one comes; WorkersReady says when."
    SUSPENDED = "Suspended", "The job stands still because spec.suspend says so."
    SUCCEEDED = "Succeeded", "The job has ended well."
    FAILED = "Failed", "The job has failed; Failed and status.failure say how."


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})
"""A job in one of these is never run again."""
