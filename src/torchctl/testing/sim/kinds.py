"""The kinds that the simulated API server serves."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec

from torchctl.api.capacity import LIMIT_RANGE, PRIORITY_CLASS, RESOURCE_QUOTA, RUNTIME_CLASS
from torchctl.api.crd import crds
from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    JOB,
    KAI_PODGROUP,
    KAI_QUEUE,
    POD,
    PVC,
    SERVICE,
)
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.kinds import EVENT, LEASE, Kind, ObjectMeta
from torchctl.testing.fake import Served, served_by
from torchctl.testing.sim import admission

__all__ = ["NAMESPACE", "NODE", "cluster_kinds"]

TEXT_MAP: dict[str, Any] = {"additionalProperties": {}}
CONDITIONS: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
WITH_CONDITIONS: dict[str, Any] = {"properties": {"status": {"properties": {"conditions": CONDITIONS}}}}


class Raw(msgspec.Struct, frozen=True):
    """An object of which only the metadata is read."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


NODE = Kind("", "v1", "Node", "nodes", Raw, namespaced=False)
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Raw, namespaced=False)


def cluster_kinds() -> list[Served]:
    """Returns the built-in kinds, KAI's and ours."""
    return [*_built_in(), *_kai(), *_ours()]


def _built_in() -> Iterable[Served]:
    yield Served(POD, status=True, generation=True, graceful=True, admit=admission.pod, schema=WITH_CONDITIONS)
    yield Served(JOB, status=True, generation=True, admit=admission.job)
    yield Served(PVC, status=True, admit=admission.claim)
    yield Served(SERVICE, status=True)
    yield Served(CONFIG_MAP, schema={"properties": {"data": TEXT_MAP, "binaryData": TEXT_MAP}})
    yield Served(CONTROLLER_REVISION)
    yield Served(EVENT)
    yield Served(LEASE)
    yield Served(NODE, status=True)
    yield Served(NAMESPACE, status=True)
    yield Served(RESOURCE_QUOTA, status=True)
    yield Served(PRIORITY_CLASS)
    yield Served(LIMIT_RANGE)
    yield Served(RUNTIME_CLASS)


def _kai() -> Iterable[Served]:
    for kind in (KAI_QUEUE, KAI_PODGROUP):
        yield Served(kind, status=True, generation=True, builtin=False)


@cache
def _ours() -> tuple[Served, ...]:
    kinds: tuple[Kind[Any], ...] = (TORCHRUN_QUEUE, TORCHRUN_JOB)
    queue, job = (served_by(crd, kind) for crd, kind in zip(crds(), kinds, strict=True))
    return queue, replace(job, admit=admission.torchrun_job)
