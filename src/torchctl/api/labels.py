"""Labels, annotations and environment variables that the operator sets, and those that users may not set.

A TorchrunJob that sets a key of the operator is refused, not corrected in silence: such a key could put its pods into
another team's queue or gang, or give a process a rank that torchrun did not assign.
"""

from collections.abc import Mapping

__all__ = [
    "APP_COMPONENT",
    "APP_INSTANCE",
    "APP_MANAGED_BY",
    "APP_NAME",
    "ATTEMPT",
    "JOB_NAME",
    "JOB_UID",
    "KAI_BATCH_MIN_MEMBER",
    "KAI_POD_GROUP",
    "KAI_QUEUE",
    "KAI_SKIP_PODGROUPER",
    "KUEUE_PAUSED",
    "KUEUE_QUEUE",
    "LEGACY_JOB_NAME",
    "OWNED_ENV",
    "OWNED_ENV_PREFIXES",
    "OWNED_KEYS",
    "OWNED_KEY_PREFIXES",
    "PLAIN_CONTAINERS",
    "QUEUE",
    "QUEUE_UID",
    "ROLE",
    "ROLE_RESOURCE",
    "ROLE_SYNC",
    "ROLE_WORKER",
    "VOLCANO_POD_GROUP",
    "WORKSPACE_KEPT",
    "WORKSPACE_PACKED",
    "WORKSPACE_REVISION",
    "attempt_of",
    "job_labels",
    "owned_env",
    "owned_key",
    "queue_labels",
    "selector",
]

APP_NAME = "app.kubernetes.io/name"
APP_INSTANCE = "app.kubernetes.io/instance"
APP_COMPONENT = "app.kubernetes.io/component"
APP_MANAGED_BY = "app.kubernetes.io/managed-by"

JOB_NAME = "torchrun.ai/job-name"
JOB_UID = "torchrun.ai/job-uid"
QUEUE = "torchrun.ai/queue"
QUEUE_UID = "torchrun.ai/queue-uid"
ROLE = "torchrun.ai/role"
ATTEMPT = "torchrun.ai/attempt"
WORKSPACE_REVISION = "torchrun.ai/workspace-revision"
"""Annotation of a sync pod: the revision that it was asked for."""
WORKSPACE_KEPT = "torchrun.ai/workspace-kept"
"""Annotation of a sync pod that leaves what the claim has, whatever the source has."""
WORKSPACE_PACKED = "torchrun.ai/workspace-packed"
"""Annotation of a workspace claim that keeps an upload as one file, so that no worker finds files there."""
REVISIONS = "torchrun.ai/revisions"
"""Annotation of a job: the revisions that it was sent while it ran, the newest last, with blanks between."""
FILES_ONLY = "torchrun.ai/files-only"
"""Annotation of a job: the revision that was sent last, if programs were not to be started again with it."""
BEHIND = "torchrun.ai/behind"
"""Annotation of a job: a revision, a blank, and the workers that did not have it when its sender looked last."""
LEGACY_JOB_NAME = "torchrun-job-name"
"""The selector of the first documentation, which users have in their scripts."""

ROLE_WORKER = "worker"
ROLE_SYNC = "sync"
ROLE_RESOURCE = "resource"
"""The role of an object of a queue's spec.resources."""

KAI_QUEUE = "kai.scheduler/queue"
KAI_SKIP_PODGROUPER = "kai.scheduler/skip-podgrouper"
KAI_BATCH_MIN_MEMBER = "kai.scheduler/batch-min-member"
KAI_POD_GROUP = "pod-group-name"
VOLCANO_POD_GROUP = "scheduling.k8s.io/group-name"
"""The only annotation that puts a pod into a PodGroup of Volcano; with `scheduling.volcano.sh/group-name` alone Volcano
makes another one."""
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a Job: the LocalQueue that it waits in. On its owner Kueue would take it for the owner's, and leave the Job
alone."""
KUEUE_PAUSED = "torchrun.ai/paused"
"""Annotation of a Workload that this operator has made inactive: its job is suspended, pods of its last run are still
there, or its attempt is over."""
PLAIN_CONTAINERS = "torchrun.ai/plain-containers"
"""Annotation of a queue's podTemplate: names of containers, separated by commas, that do not become native sidecars."""

OWNED_KEY_PREFIXES = ("kai.scheduler/", "scheduling.volcano.sh/", "torchrun.ai/", "batch.kubernetes.io/")
OWNED_KEYS = (
    KAI_POD_GROUP,
    VOLCANO_POD_GROUP,
    LEGACY_JOB_NAME,
    APP_NAME,
    APP_INSTANCE,
    APP_COMPONENT,
    APP_MANAGED_BY,
    "job-name",
    "controller-uid",
)
"""Label and annotation keys that the operator (or the Job controller) sets on what it makes."""

OWNED_ENV_PREFIXES = ("PET_", "TORCHRUN_")
OWNED_ENV = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NNODES",
    "NODE_RANK",
    "NPROC_PER_NODE",
    "POD_IP",
    "JOB_COMPLETION_INDEX",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
)
"""Variables that torchrun or the operator sets; a user's value would put a rank into another world."""


def owned_key(key: str) -> bool:
    """Whether a label or annotation key is the operator's."""
    return key in OWNED_KEYS or key.startswith(OWNED_KEY_PREFIXES)


def owned_env(name: str) -> bool:
    """Whether an environment variable is the operator's."""
    return name in OWNED_ENV or name.startswith(OWNED_ENV_PREFIXES)


def attempt_of(labels: Mapping[str, str]) -> int:
    """Returns the attempt that a child's labels name; 0 if they name none."""
    text = labels.get(ATTEMPT, "")
    return int(text) if text.isdecimal() else 0


def job_labels(job: str, uid: str, queue: str, role: str) -> dict[str, str]:
    """Returns the labels of every child of a job. Jobs and pods also have `ATTEMPT`."""
    return {
        APP_NAME: "torchrun-job",
        APP_INSTANCE: job,
        APP_COMPONENT: role,
        APP_MANAGED_BY: "torchctl",
        JOB_NAME: job,
        JOB_UID: uid,
        QUEUE: queue,
        ROLE: role,
        LEGACY_JOB_NAME: job,
    }


def queue_labels(queue: str) -> dict[str, str]:
    """Returns the labels of every object of a queue's spec.resources."""
    return {
        APP_NAME: "torchrun-queue",
        APP_INSTANCE: queue,
        APP_COMPONENT: ROLE_RESOURCE,
        APP_MANAGED_BY: "torchctl",
        QUEUE: queue,
        ROLE: ROLE_RESOURCE,
    }


def selector(labels: Mapping[str, str]) -> str:
    """Returns a label selector for these labels, as the API and status.selector spell it."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
