"""Reads pod templates and pods once each: to parse thousands of quantities takes longer than a decision.

What is kept follows from the objects alone, and is dropped when they are gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from torchctl.api.capacity import BoundPod, Node
from torchctl.controllers.coordinator.shapes import amounts, demand_of, namespace_demand, requests_of, shape_of
from torchctl.controllers.coordinator.values import Demand, Shape
from torchctl.runtime.kinds import Key, Object

__all__ = ["Asked", "Readings"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one pod of a template asks for, and what it takes of quotas."""

    shape: Shape
    demand: Demand
    namespace_demand: tuple[tuple[str, int], ...]

    def demand_for(self, pods: int) -> Demand:
        """Returns what a job with so many pods takes of its queue's quota."""
        one = self.demand
        return Demand(pods * one.gpus, pods * one.cpus, pods * one.memory)

    def namespace_demand_for(self, pods: int) -> tuple[tuple[str, int], ...]:
        """Returns what so many pods take of a ResourceQuota."""
        return tuple((name, pods * amount) for name, amount in self.namespace_demand)


_Version = tuple[str, str]


def _version(obj: Object) -> _Version:
    return obj.metadata.uid, obj.metadata.resource_version


class Readings:
    """Remembers what was read, by the object that it was read from."""

    def __init__(self) -> None:
        self._templates: dict[Key, Asked] = {}
        self._pods: dict[_Version, dict[str, int]] = {}
        self._nodes: dict[_Version, dict[str, int]] = {}
        self._shapes: dict[Shape, Shape] = {}

    def template(self, revision: Key, template: Mapping[str, Any]) -> Asked:
        """Returns what the pods of a template ask for. A revision's name has the digest of its data."""
        found = self._templates.get(revision)
        if found is None:
            pod = template["pod"]
            spec, labels = pod["spec"], pod["metadata"].get("labels") or {}
            demand = demand_of(spec, 1, template.get("gpuResource", ""))
            found = Asked(self.shared(shape_of(spec, labels)), demand, namespace_demand(spec, 1))
            self._templates[revision] = found
        return found

    def shared(self, shape: Shape) -> Shape:
        """Returns equal shapes as one object, which is what the decision compares first."""
        return self._shapes.setdefault(shape, shape)

    def pod(self, pod: BoundPod) -> dict[str, int]:
        """Returns what a pod takes of its node."""
        key = _version(pod)
        found = self._pods.get(key)
        if found is None:
            found = self._pods[key] = {**requests_of(msgspec.to_builtins(pod.spec)), "pods": 1}
        return found

    def node(self, node: Node) -> dict[str, int]:
        """Returns what a node has for pods."""
        key = _version(node)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = amounts(node.status.allocatable)
        return found

    def keep(self, revisions: Iterable[Key], pods: Iterable[BoundPod], nodes: Iterable[Node]) -> None:
        """Drops what belongs to none of these objects."""
        names, there, machines = set(revisions), set(map(_version, pods)), set(map(_version, nodes))
        self._nodes = {key: there_is for key, there_is in self._nodes.items() if key in machines}
        self._templates = {key: asked for key, asked in self._templates.items() if key in names}
        self._pods = {key: asked for key, asked in self._pods.items() if key in there}
        self._shapes = {asked.shape: asked.shape for asked in self._templates.values()}
