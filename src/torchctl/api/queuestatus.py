"""The status of a TorchrunQueue, which the operator writes."""

from typing import Annotated

import msgspec

from torchctl.api.casing import camel
from torchctl.api.statusfields import (
    AMOUNT,
    CONDITIONS,
    OBSERVED_GENERATION,
    count,
    flag,
    listed,
    mapping,
    nested,
    text,
)
from torchctl.runtime.kinds import Condition

__all__ = ["GpuCounts", "JobCounts", "KaiQueueStatus", "QueueStatus", "ResourceState", "VolcanoQueueStatus"]


class KaiQueueStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The KAI Queue behind this queue, as KAI reports it."""

    name: Annotated[str, text("Name of the KAI Queue.")] = ""
    uid: Annotated[str, text("UID of the KAI Queue. Only one that this queue made is ever changed or deleted.")] = ""
    allocated: Annotated[
        dict[str, Annotated[str, AMOUNT]], mapping("What the pods in it have got, by KAI's count, as quantities.")
    ] = {}
    requested: Annotated[
        dict[str, Annotated[str, AMOUNT]], mapping("What the pods in it ask for, by KAI's count, as quantities.")
    ] = {}


class VolcanoQueueStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The Volcano Queue behind this queue."""

    name: Annotated[str, text("Name of the Volcano Queue.")] = ""
    uid: Annotated[str, text("UID of the Volcano Queue. Only one that this queue made is ever changed or deleted.")] = (
        ""
    )
    state: Annotated[str, text("Open, Closing, Closed or Unknown, as Volcano says; empty until it has.")] = ""


class JobCounts(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The numbers of the queue's jobs by state."""

    pending: Annotated[int, count("Jobs that have just come.")] = 0
    syncing: Annotated[int, count("Jobs whose workspace is being filled.")] = 0
    queued: Annotated[int, count("Jobs that wait for admission.", shown=True)] = 0
    running: Annotated[int, count("Jobs whose workers start, run or restart.", shown=True)] = 0
    suspended: Annotated[int, count("Jobs that stand still.")] = 0
    succeeded: Annotated[int, count("Jobs that ended well.")] = 0
    failed: Annotated[int, count("Jobs that failed.")] = 0


class GpuCounts(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """GPUs of the queue's unfinished jobs."""

    requested: Annotated[int, count("GPUs of all jobs that are neither finished nor suspended.", maximum=2**53)] = 0
    running: Annotated[int, count("GPUs of the jobs whose workers run.", maximum=2**53, shown=True)] = 0


class ResourceState(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """One of spec.resources, as it stands."""

    kind: Annotated[str, text("Kind of the object.")] = ""
    name: Annotated[str, text("Name of the object.")] = ""
    ready: Annotated[bool, flag("Whether it is as the queue says.")] = False
    message: Annotated[
        str, text("What keeps it from being so, or where it is not what the template says by now.", max_length=32768)
    ] = ""


class QueueStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The state of the queue, its objects and its jobs, as the operator saw it."""

    observed_generation: Annotated[int, OBSERVED_GENERATION] = 0
    conditions: Annotated[tuple[Condition, ...], CONDITIONS] = ()
    kai_queue: KaiQueueStatus | None = None
    volcano_queue: VolcanoQueueStatus | None = None
    jobs: Annotated[JobCounts, nested(shown=True)] = JobCounts()
    gpus: Annotated[GpuCounts, nested(shown=True)] = GpuCounts()
    kept_workspaces: Annotated[
        int,
        count(
            "Jobs that have ended and whose workspace claim is still there: each stays until its job is deleted, by "
            "somebody or by runPolicy.ttlSecondsAfterFinished."
        ),
    ] = 0
    resources: Annotated[tuple[ResourceState, ...], listed("State of spec.resources.")] = ()
    template_hash: Annotated[str, text("Hash of the template that new jobs get.")] = ""
