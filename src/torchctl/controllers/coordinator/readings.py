"""Reads jobs, pod templates, nodes and pods once each version: to read all of a cluster takes longer than a decision.

What is kept follows from the objects alone, and is dropped when they are gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from torchctl.api import labels
from torchctl.api.capacity import BoundPod, Node
from torchctl.api.job import TorchrunJob
from torchctl.controllers.coordinator import values
from torchctl.controllers.coordinator.admitted import PodDefaults, admitted, spec_of
from torchctl.controllers.coordinator.shapes import (
    amounts,
    demand_of,
    namespace_demand,
    scopes_of,
    shape_of,
    taken_of,
    unnamed_of,
)
from torchctl.runtime.kinds import Key

__all__ = ["Asked", "OnNode", "Readings"]

Template = Mapping[str, Any]

_NO_DEFAULTS = PodDefaults()


@dataclass(frozen=True, slots=True)
class Asked:
    """What one pod of a template asks for, and what it takes of quotas."""

    shape: values.PodShape
    demand: values.Demand
    namespace_demand: tuple[tuple[str, int], ...]
    quota_scopes: tuple[tuple[str, str], ...]
    unnamed: tuple[tuple[str, str], ...]
    # Jobs of one size get the same objects: there are many of them, and telling them apart by identity is fast.
    _demands: dict[int, values.Demand] = field(default_factory=dict, repr=False, compare=False)
    _namespace_demands: dict[int, tuple[tuple[str, int], ...]] = field(default_factory=dict, repr=False, compare=False)

    def demand_for(self, pods: int) -> values.Demand:
        """Returns what a job with so many pods takes of its queue's quota."""
        found = self._demands.get(pods)
        if found is None:
            one = self.demand
            found = self._demands[pods] = values.Demand(pods * one.gpus, pods * one.cpus, pods * one.memory)
        return found

    def namespace_demand_for(self, pods: int) -> tuple[tuple[str, int], ...]:
        """Returns what so many pods take of a ResourceQuota."""
        found = self._namespace_demands.get(pods)
        if found is None:
            found = tuple((name, pods * amount) for name, amount in self.namespace_demand)
            self._namespace_demands[pods] = found
        return found


class OnNode(NamedTuple):
    """A node and what its pods take.

    Args:
        node: None if it is gone or going.
        workers: How many workers are on it, by the uid of their job and the attempt.
    """

    name: str
    node: values.NodeInfo | None
    workers: tuple[tuple[tuple[str, str], int], ...]


class Readings:
    """Remembers what was read, by the object that it was read from. One decision uses it at a time."""

    def __init__(self) -> None:
        self._templates: dict[Key, tuple[PodDefaults, Asked]] = {}
        self._shapes: dict[values.PodShape, values.PodShape] = {}
        self._asked: dict[Asked, Asked] = {}
        self._beside: object = None
        self._waiting: dict[str, tuple[TorchrunJob, values.Waiting]] = {}
        self._waiting_now: dict[str, tuple[TorchrunJob, values.Waiting]] = {}
        self._nodes: dict[str, tuple[Node | None, Sequence[BoundPod], OnNode]] = {}

    def begin(self, beside: object) -> None:
        """Begins a decision.

        Args:
            beside: All that the gangs of jobs depend on but their own jobs and templates. It seldom changes, and then
                each of them is read again.
        """
        if beside != self._beside:
            self._beside, self._waiting = beside, {}

    def template(self, revision: Key, template: Template, defaults: PodDefaults = _NO_DEFAULTS) -> Asked:
        """Returns what the pods of a template ask for. A revision's name has the digest of its data.

        Args:
            defaults: What its pods get at admission.

        Raises:
            Exception: It is no template. Until a pod is made of it, no API server checks what users have put into it.
        """
        known = self._templates.get(revision)
        if known is not None and (known[0] is defaults or known[0] == defaults):
            return known[1]
        spec, given = admitted(spec_of(template), defaults), template["pod"]["metadata"].get("labels") or {}
        demand = demand_of(spec, 1, template.get("gpuResource", ""))
        shape = self.shared(shape_of(spec, given))
        read = Asked(shape, demand, namespace_demand(spec, 1), scopes_of(spec), unnamed_of(spec))
        found = self._asked.setdefault(read, read)  # each job has a template of its own, and most say the same
        self._templates[revision] = (defaults, found)
        return found

    def shared(self, shape: values.PodShape) -> values.PodShape:
        """Returns equal shapes as one object, which is what the decision compares first."""
        return self._shapes.setdefault(shape, shape)

    def waiting(self, job: TorchrunJob) -> values.Waiting | None:
        """Returns the gang of a job that waits; None if the job has changed, and with it maybe its template."""
        known = self._waiting.get(job.metadata.uid)
        if known is None or known[0] is not job:
            return None
        self._waiting_now[job.metadata.uid] = known
        return known[1]

    def waits(self, job: TorchrunJob, gang: values.Waiting) -> None:
        """Remembers the gang of a job that waits."""
        self._waiting_now[job.metadata.uid] = (job, gang)

    def nodes(self, nodes: Iterable[Node], pods: Iterable[BoundPod]) -> list[OnNode]:
        """Returns the nodes, and those that are gone but still have pods; each is read if it or a pod has changed."""
        on: dict[str, list[BoundPod]] = {}
        for pod in pods:
            on.setdefault(pod.spec.node_name, []).append(pod)
        there: dict[str, Node | None] = dict.fromkeys(on)
        there |= {node.metadata.name: node for node in nodes if node.metadata.deletion_timestamp is None}
        before, self._nodes = self._nodes, {}
        for name, node in there.items():
            mine, known = on.get(name, []), before.get(name)
            if known is None or known[0] is not node or known[1] != mine:
                known = (node, mine, _on_node(name, node, mine))
            self._nodes[name] = known
        return [found for _, _, found in self._nodes.values()]

    def keep(self, revisions: Iterable[Key]) -> None:
        """Ends a decision: drops the templates of all other revisions, and jobs that wait no more."""
        names = set(revisions)
        self._templates = {key: known for key, known in self._templates.items() if key in names}
        different = {id(asked): asked for _, asked in self._templates.values()}.values()
        self._asked = {asked: asked for asked in different}
        self._shapes = {asked.shape: asked.shape for asked in different}
        self._waiting, self._waiting_now = self._waiting_now, {}


def _on_node(name: str, node: Node | None, pods: Iterable[BoundPod]) -> OnNode:
    used: dict[str, int] = {}
    workers: dict[tuple[str, str], int] = {}
    for pod in pods:
        for resource, amount in {**taken_of(msgspec.to_builtins(pod.spec)), "pods": 1}.items():
            used[resource] = used.get(resource, 0) + amount
        given = pod.metadata.labels
        if given.get(labels.ROLE) == labels.ROLE_WORKER:
            gang = given.get(labels.JOB_UID, ""), given.get(labels.ATTEMPT, "")
            workers[gang] = workers.get(gang, 0) + 1
    return OnNode(name, None if node is None else _node(name, node, used), tuple(workers.items()))


def _node(name: str, node: Node, used: Mapping[str, int]) -> values.NodeInfo:
    taints = node.spec.taints or ()
    return values.NodeInfo(
        name=name,
        allocatable=amounts(node.status.allocatable),
        used=used,
        labels=node.metadata.labels,
        taints=tuple(values.Taint(taint.key, taint.value, taint.effect) for taint in taints),
    )
