"""Indexes of TorchrunJobs and TorchrunQueues for the reconcilers. Pure."""

from torchctl.api.job import TorchrunJob
from torchctl.api.queue import TorchrunQueue
from torchctl.runtime.kinds import Key

__all__ = [
    "JOBS_BY_CLAIM",
    "JOBS_BY_DEPENDENCY",
    "JOBS_BY_QUEUE",
    "QUEUES_BY_CACHE",
    "QUEUES_BY_KAI",
    "QUEUES_BY_PARENT",
    "QUEUES_BY_VOLCANO",
    "cache_of",
    "claims_of",
    "dependencies_of",
    "kai_of",
    "parent_of",
    "queue_of",
    "volcano_of",
]

JOBS_BY_QUEUE = "queue"
"""Jobs by the `namespace/name` of the queue that they name."""

JOBS_BY_CLAIM = "claim"
"""Jobs by the `namespace/name` of the existing claim that they take their workspace from."""

JOBS_BY_DEPENDENCY = "dependency"
"""Jobs by the `namespace/name` of each job that they depend on."""

QUEUES_BY_CACHE = "cache-claim"
"""Queues by the `namespace/name` of the claim in which they keep what was uploaded."""

QUEUES_BY_KAI = "kai-queue"
"""Queues by the name of the KAI Queue that they name as their own."""

QUEUES_BY_PARENT = "parent-kai-queue"
"""Queues by the name of the KAI Queue that they name as their parent."""

QUEUES_BY_VOLCANO = "volcano-queue"
"""Queues by the name of the Volcano Queue that they name as their own."""


def queue_of(job: TorchrunJob) -> tuple[str, ...]:
    return (str(Key(job.metadata.namespace, job.spec.job_queue)),)


def claims_of(job: TorchrunJob) -> tuple[str, ...]:
    workspace = job.spec.volumes.workspace
    named = workspace.claim_name if workspace is not None else None
    return (str(Key(job.metadata.namespace, named)),) if named else ()


def cache_of(queue: TorchrunQueue) -> tuple[str, ...]:
    workspace = queue.spec.storage.workspace
    named = workspace.cache_claim_name if workspace is not None else None
    return (str(Key(queue.metadata.namespace, named)),) if named else ()


def dependencies_of(job: TorchrunJob) -> tuple[str, ...]:
    return tuple(str(Key(job.metadata.namespace, wanted.job)) for wanted in job.spec.depends_on)


def kai_of(queue: TorchrunQueue) -> tuple[str, ...]:
    return (queue.spec.kai_queue,) if queue.spec.kai_queue else ()


def parent_of(queue: TorchrunQueue) -> tuple[str, ...]:
    return (queue.spec.parent_kai_queue,) if queue.spec.parent_kai_queue else ()


def volcano_of(queue: TorchrunQueue) -> tuple[str, ...]:
    named = queue.spec.scheduling.volcano_queue
    return (named,) if named else ()
