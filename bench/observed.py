"""A cluster for the coordinator as its caches have it: jobs, templates, nodes and pods."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from torchctl.api import labels
from torchctl.api.capacity import BoundPod, Node
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.controllers.coordinator import values
from torchctl.controllers.coordinator.observed import Observed
from torchctl.runtime.kinds import Key

__all__ = ["observed"]

NAMESPACE = "team"


def observed(state: values.State) -> Observed:
    """Returns the objects from which the coordinator would make this state, but for quotas and starts.

    Each job has a ControllerRevision of its own, as in a cluster, though many say the same.
    """
    jobs: list[TorchrunJob] = []
    templates: dict[Key, dict[str, Any]] = {}
    pods: list[BoundPod] = []
    gangs: tuple[values.Waiting | values.Holding, ...] = (*state.waiting, *state.holdings)
    for gang in gangs:
        job = _job(gang)
        jobs.append(job)
        templates[Key(NAMESPACE, job.status.queue_revision)] = _template(gang.shape, gang.pods)
        if isinstance(gang, values.Holding):
            pods += _pods(gang)
    return Observed(
        jobs=tuple(jobs),
        templates=templates,
        queues=tuple(_queue(queue) for queue in state.queues),
        nodes=tuple(_node(node) for node in state.nodes),
        pods=tuple(pods),
    )


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _job(gang: values.Waiting | values.Holding) -> TorchrunJob:
    name = gang.key.partition("/")[2]
    status: dict[str, Any] = {"phase": "Queued", "queueRevision": f"{name}-queue"}
    spec = {"jobQueue": gang.queue.partition("/")[2], "numNodes": gang.pods, "command": "python train.py"}
    if isinstance(gang, values.Holding):
        created_s = gang.let_in_s
        admission = {"attempt": 0, "letInTime": _time(gang.let_in_s), "clock": 1, "position": 1}
        status |= {"phase": "Running", "admission": admission, "workers": {"running": gang.pods}}
    else:
        created_s = gang.since_s
        spec |= {"runPolicy": {"activeDeadlineSeconds": int(gang.lasts_s)}} if gang.lasts_s else {}
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": name,
        "resourceVersion": "1",
        "creationTimestamp": _time(created_s),
    }
    body = {"metadata": metadata, "spec": spec, "status": status}
    return msgspec.convert(body, TorchrunJob, dec_hook=TORCHRUN_JOB.dec_hook)


def _amounts(requests: Iterable[tuple[str, int]]) -> dict[str, str]:
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in requests}


def _template(shape: values.PodShape, pods: int) -> dict[str, Any]:
    terms = [
        {
            "matchExpressions": [
                {"key": key, "operator": operator, "values": list(given)} for key, operator, given in term
            ]
        }
        for term in shape.affinity
    ]
    spec = {
        "containers": [{"name": "trainer", "resources": {"limits": _amounts(shape.requests)}}],
        "nodeSelector": dict(shape.selector),
        "tolerations": [{"key": given.key, "operator": given.operator} for given in shape.tolerations],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
    }
    return {
        "coordinated": True,
        "nodes": pods,
        "gpuResource": "nvidia.com/gpu",
        "pod": {"metadata": {}, "spec": spec},
    }


def _pods(holding: values.Holding) -> Iterator[BoundPod]:
    name = holding.key.partition("/")[2]
    of = {labels.ROLE: labels.ROLE_WORKER, labels.JOB_UID: name, labels.ATTEMPT: "0"}
    container = {"resources": {"limits": _amounts(holding.shape.requests)}}
    for node, count in holding.placed:
        for at in range(count):
            metadata = {"name": f"{name}-{node}-{at}", "uid": f"{name}-{node}-{at}", "labels": of}
            body = {"metadata": metadata, "spec": {"nodeName": node, "containers": [container]}}
            yield msgspec.convert(body, BoundPod)


def _node(node: values.NodeInfo) -> Node:
    metadata = {"name": node.name, "uid": node.name, "labels": dict(node.labels)}
    body = {"metadata": metadata, "status": {"allocatable": _amounts(node.allocatable.items())}}
    return msgspec.convert(body, Node)


def _queue(queue: values.Queue) -> TorchrunQueue:
    spec = {"weight": queue.weight, "cohort": queue.cohort, "quota": {"gpus": queue.quota.gpus}}
    body = {"metadata": {"name": queue.key.partition("/")[2], "namespace": NAMESPACE}, "spec": spec}
    return msgspec.convert(body, TorchrunQueue, dec_hook=TORCHRUN_QUEUE.dec_hook)
