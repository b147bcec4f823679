"""Specs and objects of a job and its queue, from YAML."""

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import yaml

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.runtime.kinds import Kind, Object

__all__ = ["EPOCH", "UID", "decoded", "elastic", "job", "job_of", "queue_of"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
UID = "0c5f3a52-6f0e-4a53-9f2b-1d1f4b6f7a10"


T = TypeVar("T", bound=Object)

TWO = "{jobQueue: research, numNodes: 2, command: python train.py%s}"
ELASTIC = "{jobQueue: research, numNodes: %d, command: python train.py, elastic: {minNodes: 2, maxNodes: 4}%s}"


def job(more: str = "") -> str:
    """The spec of a job of two workers, in YAML."""
    return TWO % (f", {more}" if more else "")


def elastic(nodes: int = 3, more: str = "") -> str:
    """The spec of a job of two to four workers, in YAML."""
    return ELASTIC % (nodes, f", {more}" if more else "")


def decoded(kind: Kind[T], body: Any) -> T:
    return msgspec.convert(body, kind.type, dec_hook=kind.dec_hook)


def _read(text: str) -> Any:
    return yaml.load(text, Loader=yaml.CSafeLoader)  # four times as fast, and most tests of rules begin with it


def job_of(text: str) -> TorchrunJob:
    """A TorchrunJob from its spec in YAML."""
    meta = {"name": "demo", "namespace": "team", "uid": UID, "generation": 1, "resourceVersion": "1"}
    return decoded(TORCHRUN_JOB, {"metadata": meta, "spec": _read(text)})


def queue_of(text: str) -> TorchrunQueue:
    """A TorchrunQueue from its spec in YAML, as its own reconciler leaves it where all is well."""
    meta = {"name": "research", "namespace": "team", "uid": "queue-uid", "generation": 1}
    ready = {"type": "KaiQueueReady", "status": "True", "reason": "KaiQueueReady", "observedGeneration": 1}
    body = {"metadata": meta, "spec": _read(text) or {}, "status": {"conditions": [ready]}}
    return decoded(TORCHRUN_QUEUE, body)
