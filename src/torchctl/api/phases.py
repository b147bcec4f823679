"""The phases of a TorchrunJob: one word for people. Phases follow from conditions, never the other way round."""

from torchctl.api.words import Word

__all__ = ["TERMINAL", "Phase"]


class Phase(Word):
    """The phase of a job. `kubectl get trj` shows it."""

    PENDING = (
        "Pending",
        "The spec cannot be run, the queue is missing, or other jobs come first: Accepted, QueueFound and "
        "DependenciesMet say which.",
    )
    SYNCING = "Syncing", "The workspace is being filled; WorkspaceReady says how far it is."
    QUEUED = "Queued", "The job waits for the gang scheduler; Admitted has its reasons."
    STARTING = "Starting", "The workers are placed and start; WorkersReady says what keeps them."
    RUNNING = "Running", "All workers run."
    RESTARTING = (
        "Restarting",
        "An attempt was lost. Unless the loss ends the job, the next one comes; WorkersReady says when.",
    )
    SUSPENDED = "Suspended", "The job stands still because spec.suspend says so."
    SUCCEEDED = "Succeeded", "The job has ended well."
    FAILED = "Failed", "The job has failed; Failed and status.failure say how."


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})
"""A job in one of these is never run again."""
