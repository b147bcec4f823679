"""Makes the objects that the coordinator reads in a line, and the state of a decision of them."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec

from torchctl.api.capacity import BoundPod, Node, PriorityClass
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.controllers.coordinator.decision import Answer, Told, Why
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.plan import state_of
from torchctl.controllers.coordinator.values import State
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.kinds import Key, ObjectMeta

NOW = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
GPU = "nvidia.com/gpu"
TEMPLATE: dict[str, Any] = {
    "coordinated": True,
    "nodes": 2,
    "gpuResource": GPU,
    "pod": {"metadata": {}, "spec": {"containers": [{"name": "trainer", "resources": {"limits": {GPU: "8"}}}]}},
}
NUMBERS = count()
QUEUED = {"phase": "Queued", "queueRevision": "job-1"}


def a_job(name: str = "job", status: dict[str, Any] | None = None, **spec: Any) -> TorchrunJob:
    body = {
        "metadata": {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-03-01T07:00:00Z"},
        "spec": {"jobQueue": "queue", "numNodes": 2, "command": "python train.py", **spec},
        "status": QUEUED if status is None else status,
    }
    return msgspec.convert(body, TorchrunJob, dec_hook=TORCHRUN_JOB.dec_hook)


def a_queue(name: str = "queue", **spec: Any) -> TorchrunQueue:
    body = {"metadata": {"name": name, "namespace": "team"}, "spec": spec}
    return msgspec.convert(body, TorchrunQueue, dec_hook=TORCHRUN_QUEUE.dec_hook)


def a_node(name: str = "n0", **spec: Any) -> Node:
    body = {
        "metadata": {"name": name, "uid": name},
        "spec": spec,
        "status": {"allocatable": {GPU: "8", "cpu": "4", "pods": "10"}},
    }
    return msgspec.convert(body, Node)


def a_pod(node: str, labels: dict[str, str] | None = None, gpus: int = 8) -> BoundPod:
    containers = [{"resources": {"limits": {GPU: str(gpus)}}}]
    metadata = {"uid": f"pod-{next(NUMBERS)}", "labels": labels or {}}
    body = {"metadata": metadata, "spec": {"nodeName": node, "containers": containers}}
    return msgspec.convert(body, BoundPod)


def a_class(name: str, value: int, default: bool = False) -> PriorityClass:
    return PriorityClass(msgspec.convert({"name": name}, ObjectMeta), value, default)


def seen(*jobs: TorchrunJob, template: dict[str, Any] = TEMPLATE, **more: Any) -> State:
    more.setdefault("queues", (a_queue(),))
    observed = Observed(jobs=jobs, templates={Key("team", "job-1"): template}, **more)
    return state_of(observed, CoordinatorSettings(), NOW)


def record(**fields: Any) -> dict[str, Any]:
    return {"attempt": 0, "letInTime": "2026-03-01T07:30:00Z", "clock": 3, "position": 2, **fields}


def is_told(key: str, place: int, why: Why, message: str, waits_for: str = "", estimate_s: float | None = None) -> Told:
    """What a gang that waits is told."""
    return Told(key, place, Answer(why, lambda: message, waits_for), estimate_s)
