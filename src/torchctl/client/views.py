"""Our two kinds as a client reads them: with the fields that are shown, and without judging the spec.

A job that was submitted by a newer client, with fields or values that this one does not know, is read all the same.
"""

from typing import Any

import msgspec

from torchctl.api.casing import camel
from torchctl.api.jobstatus import JobStatus
from torchctl.api.names import GROUP, VERSION
from torchctl.api.queuestatus import QueueStatus
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = ["JOB", "QUEUE", "ElasticView", "JobSpecView", "JobView", "NodeResourcesView", "QueueSpecView", "QueueView"]


class ElasticView(msgspec.Struct, frozen=True, rename=camel):
    min_nodes: int = 0
    max_nodes: int = 0


class JobSpecView(msgspec.Struct, frozen=True, rename=camel):
    """The fields of a TorchrunJob's spec that are shown."""

    job_queue: str = ""
    num_nodes: int | None = None
    num_gpus: int | None = None
    elastic: ElasticView | None = None
    command: str = ""
    args: tuple[str, ...] = ()
    suspend: bool = False
    hot_reload: str = "Off"


class JobView(msgspec.Struct, frozen=True, rename=camel):
    """A TorchrunJob as it is shown."""

    metadata: ObjectMeta
    spec: JobSpecView = JobSpecView()
    status: JobStatus = JobStatus()


class NodeResourcesView(msgspec.Struct, frozen=True, rename=camel):
    gpus: int = 0
    gpu_type: str = ""


class QueueSpecView(msgspec.Struct, frozen=True, rename=camel):
    """The fields of a TorchrunQueue's spec that are shown."""

    kai_queue: str = ""
    image: str = ""
    node_resources: NodeResourcesView = NodeResourcesView()
    storage: dict[str, Any] = {}


class QueueView(msgspec.Struct, frozen=True, rename=camel):
    """A TorchrunQueue as it is shown."""

    metadata: ObjectMeta
    spec: QueueSpecView = QueueSpecView()
    status: QueueStatus = QueueStatus()


JOB = Kind(GROUP, VERSION, "TorchrunJob", "torchrunjobs", JobView)
QUEUE = Kind(GROUP, VERSION, "TorchrunQueue", "torchrunqueues", QueueView)
