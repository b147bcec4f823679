"""The input of the coordinator's decision: gangs, nodes, queues and quotas, as plain values.

Times are seconds since the epoch. Amounts are whole numbers in the smallest unit that counts: CPUs in thousandths,
memory in bytes, devices and pods in pieces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torchctl.api.queue import Preemption
from torchctl.controllers.coordinator.alike import Kind, kind_of, kind_of_equal
from torchctl.controllers.settings import CoordinatorSettings

__all__ = [
    "HOST_PORT",
    "LONGEST_PAUSE_S",
    "NOBODY",
    "UNBOUNDED",
    "Demand",
    "Holding",
    "Limits",
    "NamespaceQuota",
    "NodeInfo",
    "PodShape",
    "Preemption",
    "Queue",
    "Requirement",
    "Start",
    "State",
    "Taint",
    "Toleration",
    "Turn",
    "Unreadable",
    "Waiting",
]


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """A toleration as in a pod; an empty key or effect is every one."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(NamedTuple):
    """A requirement of a node affinity term. The key `metadata.name` is the name of the node."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodShape:
    """The part of a pod's spec that decides on which nodes the pod can run.

    Args:
        requests: Amounts by resource, sorted by name, ports of the node among them.
        selector: Node labels that the pod needs.
        affinity: Terms of the required node affinity, of which one has to hold, if there are any.
        one_per_node: Whether pods of one gang exclude each other from a node.
        unmodelled: Fields of the pod that limit its nodes in a way that is not computed. Such a gang is placed alone.
        chooses: The same for shapes that choose the same nodes.
    """

    requests: tuple[tuple[str, int], ...]
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] = ()
    one_per_node: bool = False
    unmodelled: tuple[str, ...] = ()
    chooses: Kind = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A shape is looked up far more often than made, and hashing all of it takes longer than the look-up.
        object.__setattr__(self, "chooses", kind_of_equal(self.selector, self.tolerations, self.affinity))
        fields = (self.requests, self.selector, self.tolerations, self.affinity, self.one_per_node, self.unmodelled)
        object.__setattr__(self, "_hash", hash(fields))

    def __hash__(self) -> int:
        return self._hash

    def needing(self, *requirements: Requirement) -> "PodShape":
        """Returns the shape with further requirements on its nodes."""
        terms = tuple((*term, *requirements) for term in self.affinity) if self.affinity else (requirements,)
        return PodShape(self.requests, self.selector, self.tolerations, terms, self.one_per_node, self.unmodelled)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """A node as kube-scheduler sums it up: what it has, and what its pods ask for. A cordon is a taint."""

    name: str
    allocatable: Mapping[str, int]
    used: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


class Demand(NamedTuple):
    """The amounts of a whole gang that quotas count: CPUs in thousandths, memory in bytes."""

    gpus: int = 0
    cpus: int = 0
    memory: int = 0
    jobs: int = 1


class Limits(NamedTuple):
    """Bounds of what gangs may hold together; None: no bound."""

    gpus: int | None = None
    cpus: int | None = None
    memory: int | None = None
    jobs: int | None = None


HOST_PORT = "hostPort/"
"""What the resources begin with that are ports of a node: every node has one of each, as hostPort/TCP/29500."""

UNBOUNDED = Limits()
LONGEST_PAUSE_S = 3600.0
"""The longest that a gang waits at least whose pods found no node."""
NOBODY = "-"
"""For whom a gang leaves that leaves for no other gang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue, by namespace and name.

    Args:
        quota: What its gangs may hold together; in a cohort, what it owns.
        cohort: Queues of one cohort lend each other what they do not use. Empty: none.
        borrowing: What it may hold above its quota; None in it: as much as its cohort has.
        max_nodes: Pods that one gang may have.
        unknown: Jobs that hold a place in it of unknown size. They count as holding all that the queue owns.
    """

    key: str
    weight: int = 1
    quota: Limits = UNBOUNDED
    cohort: str = ""
    borrowing: Limits = UNBOUNDED
    preemption: Preemption = Preemption.NEVER
    max_nodes: int | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceQuota:
    """A ResourceQuota of a namespace: what it allows in all, and what it has left after what exists.

    Args:
        scopes: What it counts of all pods: those in scopes for which each requirement holds.
    """

    namespace: str
    name: str
    hard: Mapping[str, int]
    left: Mapping[str, int]
    scopes: tuple[Requirement, ...] = ()


class Turn(NamedTuple):
    """How far the turns of all queues are, and those of the one that starts a job, as its policy records it."""

    clock: int = 0
    position: int = 0


class Start(NamedTuple):
    """A recorded start: of which queue, when, at which turn, and at which within a cohort with its own policy."""

    queue: str
    at_s: float
    turn: Turn
    cohort_turn: Turn = Turn()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A gang that is not let in.

    Args:
        key: Namespace and name of the job.
        since_s: When it began to wait; a gang that lost its place keeps it.
        pods: All pods, which start together.
        lasts_s: How long it runs at most, by its deadline; None: nobody knows.
        namespace_demand: What the whole gang takes of ResourceQuotas, by their resource names.
        quota_scopes: The scopes of ResourceQuotas that its pods are in, with their values.
        unnamed: Resources that some containers do not name, and which: a ResourceQuota that counts it refuses the pods.
        reserved: Whether a reservation is recorded for it.
        not_before_s: When it may be let in at the earliest, after its pods found no place.
        autoscaled: Whether nodes come for its pods once they wait, so that it needs no room now.
        kind: The same for gangs of a queue that share all but key, age, priority, reservation and `lasts_s`.
    """

    key: str
    queue: str
    namespace: str
    since_s: float
    pods: int
    shape: PodShape
    demand: Demand
    priority: int = 0
    lasts_s: float | None = None
    namespace_demand: tuple[tuple[str, int], ...] = ()
    quota_scopes: tuple[tuple[str, str], ...] = ()
    unnamed: tuple[tuple[str, str], ...] = ()
    reserved: bool = False
    not_before_s: float = 0.0
    autoscaled: bool = False
    kind: Kind = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        asked = (self.pods, self.shape, self.demand, self.namespace_demand, self.quota_scopes, self.unnamed)
        object.__setattr__(self, "kind", kind_of(*asked, self.autoscaled, self.not_before_s))

    def backs_off(self, now_s: float) -> bool:
        """Whether it may not be let in yet. A time that no pause explains was written by a clock that was set wrong."""
        return 0 < self.not_before_s - now_s <= 2 * LONGEST_PAUSE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A gang that is let in and not gone.

    Args:
        placed: Its pods that are bound, by node; they are in `used` of their nodes.
        done: Pods that have ended and come back no more.
        let_in_s: When it was let in.
        ends_s: When it ends at the latest, by its deadline; None: nobody knows.
        has_run: Whether all its pods have run at some time, so that it may have lost some or ask for more since.
        leaving_for: The gang for which its room was taken back, NOBODY if for none; empty: it stays.
        pending_namespace_demand: What its pods that do not exist yet take of ResourceQuotas.
        autoscaled: Whether nodes come for its pods once they wait.
        refused: Pods that the API server does not let the Job controller create.
    """

    key: str
    queue: str
    namespace: str
    pods: int
    shape: PodShape
    demand: Demand
    let_in_s: float
    priority: int = 0
    ends_s: float | None = None
    placed: tuple[tuple[str, int], ...] = ()
    done: int = 0
    has_run: bool = False
    leaving_for: str = ""
    pending_namespace_demand: tuple[tuple[str, int], ...] = ()
    quota_scopes: tuple[tuple[str, str], ...] = ()
    autoscaled: bool = False
    refused: int = 0

    @property
    def missing(self) -> int:
        """The pods that are still to be placed."""
        return max(0, self.pods - self.done - sum(count for _, count in self.placed))


class Unreadable(NamedTuple):
    """A gang, why its template cannot be read, the error for the log, and whether it holds a place; else it waits."""

    key: str
    queue: str
    why: str
    error: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that a decision is made from. The order of the tuples means nothing."""

    now_s: float
    waiting: tuple[Waiting, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    holdings: tuple[Holding, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    queues: tuple[Queue, ...] = ()
    namespace_quotas: tuple[NamespaceQuota, ...] = ()
    starts: tuple[Start, ...] = ()
    settings: CoordinatorSettings = field(default_factory=CoordinatorSettings)
