"""Nodes, the pods on them, quotas, and what pods get at admission, with only the fields that the coordinator reads."""

from typing import Any

import msgspec

from torchctl.api.casing import camel
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = [
    "BOUND",
    "BOUND_POD",
    "LIMIT_RANGE",
    "NODE",
    "PRIORITY_CLASS",
    "RESOURCE_QUOTA",
    "RUNTIME_CLASS",
    "BoundPod",
    "LimitRange",
    "Node",
    "PriorityClass",
    "ResourceQuota",
    "RuntimeClass",
]

BOUND = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of the pods that take room on a node."""


class NodeTaint(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    taints: tuple[NodeTaint, ...] | None = None


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    allocatable: dict[str, str] = {}


class Node(msgspec.Struct, frozen=True, gc=False, rename=camel):
    """A node. One that is cordoned or not ready has a taint that says so."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class ContainerPort(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    host_port: int = 0
    protocol: str = ""


class BoundContainer(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str = ""


class BoundPodSpec(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    node_name: str = ""
    containers: tuple[BoundContainer, ...] = ()
    init_containers: tuple[BoundContainer, ...] | None = None
    overhead: dict[str, str] | None = None
    resources: Resources | None = None


class BoundPod(msgspec.Struct, frozen=True, gc=False, rename=camel):
    """A pod that takes room on a node, whosever it is."""

    metadata: ObjectMeta
    spec: BoundPodSpec = BoundPodSpec()


class ScopeRequirement(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ScopeSelector(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    match_expressions: tuple[ScopeRequirement, ...] | None = None


class QuotaSpec(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class QuotaStatus(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(msgspec.Struct, frozen=True, gc=False, rename=camel):
    metadata: ObjectMeta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class ContainerLimit(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    type: str = ""
    default: dict[str, str] | None = None
    default_request: dict[str, str] | None = None


class LimitRangeSpec(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    limits: tuple[ContainerLimit, ...] | None = None


class LimitRange(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    """Requests and limits that containers of a namespace get if they name none."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class Overhead(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    pod_fixed: dict[str, str] | None = None


class RuntimeScheduling(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    node_selector: dict[str, str] | None = None
    tolerations: tuple[dict[str, Any], ...] | None = None


class RuntimeClass(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    """A container runtime by name: what its pods take besides their containers, and the nodes that have it."""

    metadata: ObjectMeta
    overhead: Overhead | None = None
    scheduling: RuntimeScheduling | None = None


class PriorityClass(msgspec.Struct, frozen=True, gc=False, rename=camel, omit_defaults=True):
    """A priority by name; pods that name none have that of the default one."""

    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False


NODE = Kind("", "v1", "Node", "nodes", Node, namespaced=False)
BOUND_POD = Kind("", "v1", "Pod", "pods", BoundPod)
LIMIT_RANGE = Kind("", "v1", "LimitRange", "limitranges", LimitRange)
RUNTIME_CLASS = Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", RuntimeClass, namespaced=False)
RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", ResourceQuota)
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", PriorityClass, namespaced=False)
