"""The conditions of both kinds, and the reasons that they give: what a person acts on, and what code branches on."""

from enum import StrEnum

__all__ = ["JobCondition", "JobReason", "QueueCondition", "QueueReason"]


class JobCondition(StrEnum):
    """Types of status.conditions of a TorchrunJob, in the order in which a job meets them."""

    ACCEPTED = "Accepted"
    QUEUE_FOUND = "QueueFound"
    WORKSPACE_READY = "WorkspaceReady"
    ADMITTED = "Admitted"
    WORKERS_READY = "WorkersReady"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


class QueueCondition(StrEnum):
    """Types of status.conditions of a TorchrunQueue."""

    ACCEPTED = "Accepted"
    KAI_QUEUE_READY = "KaiQueueReady"
    RESOURCES_READY = "ResourcesReady"
    READY = "Ready"


class JobReason(StrEnum):
    """Reasons in the conditions of a TorchrunJob. What Kubernetes says of a pod is passed on as it is."""

    # Accepted
    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    NOT_SUPPORTED_YET = "NotSupportedYet"
    IMPOSSIBLE_GPU_COUNT = "ImpossibleGPUCount"
    IMPOSSIBLE_WORKSPACE = "ImpossibleWorkspace"
    # QueueFound
    QUEUE_FOUND = "QueueFound"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_NOT_READY = "QueueNotReady"
    # WorkspaceReady
    NO_WORKSPACE = "NoWorkspace"
    WORKSPACE_READY = "WorkspaceReady"
    CREATING_CLAIM = "CreatingClaim"
    CLAIM_NOT_FOUND = "ClaimNotFound"
    CLAIM_LOST = "ClaimLost"
    SYNCING = "Syncing"
    WAITING_FOR_UPLOAD = "WaitingForUpload"
    SYNC_FAILED = "SyncFailed"
    # Admitted
    ADMITTED = "Admitted"
    NO_GANG = "NoGang"
    WAITING_FOR_ADMISSION = "WaitingForAdmission"
    KAI_NOT_INSTALLED = "KaiNotInstalled"
    # WorkersReady
    WORKERS_READY = "WorkersReady"
    WORKERS_STARTING = "WorkersStarting"
    NOT_STARTED = "NotStarted"
    FINISHED = "Finished"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"
    UNSCHEDULABLE = "Unschedulable"
    PODS_NOT_CREATED = "PodsNotCreated"
    # any step that writes a child
    FOREIGN_OBJECT = "ForeignObject"
    REFUSED = "Refused"
    QUOTA_EXCEEDED = "QuotaExceeded"
    # Suspended
    SUSPENDED = "Suspended"
    NOT_SUSPENDED = "NotSuspended"
    # Complete, Failed
    SUCCEEDED = "Succeeded"
    RUNNING = "Running"
    WORKER_FAILED = "WorkerFailed"
    JOB_DISAPPEARED = "JobDisappeared"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    WORKSPACE_SYNC_FAILED = "WorkspaceSyncFailed"
    RESTARTS_NOT_SUPPORTED_YET = "RestartsNotSupportedYet"


class QueueReason(StrEnum):
    """Reasons in the conditions of a TorchrunQueue."""

    # Accepted
    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    NOT_SUPPORTED_YET = "NotSupportedYet"
    PARENT_NOT_ALLOWED = "ParentNotAllowed"
    # KaiQueueReady
    NO_KAI_QUEUE = "NoKaiQueue"
    KAI_QUEUE_READY = "KaiQueueReady"
    KAI_NOT_INSTALLED = "KaiNotInstalled"
    PARENT_NOT_FOUND = "ParentNotFound"
    KAI_QUEUE_NOT_FOUND = "KaiQueueNotFound"
    CONFLICT = "Conflict"
    REFUSED = "Refused"
    DELETING = "Deleting"
    # ResourcesReady
    NO_RESOURCES = "NoResources"
    RESOURCES_READY = "ResourcesReady"
    # Ready
    READY = "Ready"
    NOT_READY = "NotReady"
