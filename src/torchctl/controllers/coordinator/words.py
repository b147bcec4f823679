"""The sentences that gangs are told: what is short, and what would fit."""

from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from torchctl.api.counts import agree, counted
from torchctl.api.quantity import Format, Quantity
from torchctl.controllers.coordinator.capacity import Capacity, amount_of, slots_in
from torchctl.controllers.coordinator.matching import untolerated
from torchctl.controllers.coordinator.room import Room
from torchctl.controllers.coordinator.shortage import QuotaShortage, Scope
from torchctl.controllers.coordinator.values import HOST_PORT, NodeInfo, PodShape, Waiting

__all__ = [
    "after_others",
    "amount",
    "back_off",
    "never_fits",
    "next_decision",
    "no_queue",
    "nodes_short",
    "preempting",
    "quota_short",
    "room_kept",
    "shape",
    "too_many_nodes",
    "unreadable",
]

_NOUNS = {"gpus": "GPU", "jobs": "job", "nodes": "node"}


def amount(resource: str, value: int) -> str:
    """Returns an amount of a resource as a person writes it: 8 nvidia.com/gpu, 64 cpu, 512Gi memory."""
    if resource.startswith(HOST_PORT):
        return f"host port {resource.rpartition('/')[2]}"
    short = resource.removeprefix("requests.").removeprefix("limits.")
    if short in ("cpu", "cpus"):
        return f"{Quantity(Fraction(value, 1000))} {'CPUs' if value > 1000 else 'CPU'}"
    if short in ("memory", "ephemeral-storage") or short.startswith("hugepages-"):
        return f"{Quantity(Fraction(value), Format.BINARY)} {short}"
    return counted(value, _NOUNS[short]) if short in _NOUNS else f"{value} {short}"


@lru_cache(maxsize=256)
def shape(asked: PodShape) -> str:
    """Returns what one pod asks for."""
    said = [amount(name, value) for name, value in asked.requests if value]
    return " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:]))) or "no requests"


def nodes_short(gang: Waiting, room: Room) -> str:
    """Says how many pods find a place now, of those that need one."""
    left = min(room.left(gang.shape), gang.pods - 1)
    return (
        f"{left} of {counted(gang.pods, 'pod')} with {shape(gang.shape)} each {agree(left, 'finds', 'find')} "
        f"a node now, {gang.pods - left} short"
    )


def back_off(not_before_s: float) -> str:
    """Says why a gang that was let in waits again, and for how long."""
    again = datetime.fromtimestamp(not_before_s, UTC).strftime("%H:%M:%S")
    return (
        "it was let in, and some of its pods found no node in time: others may have taken the room, a node may have "
        f"gone, or a rule that is not computed keeps them away (see their Events); it waits until {again} UTC at least"
    )


def preempting(jobs: int) -> str:
    """Says that so many jobs make room."""
    return f"{counted(jobs, 'job')} of lower rank {agree(jobs, 'leaves', 'leave')} for it"


def no_queue(name: str) -> str:
    """Says that the job names a queue that is not there."""
    return f"there is no TorchrunQueue {name}"


def room_kept(key: str) -> str:
    """Says for whom the room is kept that there is."""
    return f"there is room, which is kept for job {key}: it waits longer"


def too_many_nodes(key: str) -> str:
    """Says that a gang would have to avoid more nodes than its record can name."""
    return (
        f"there is room beside the nodes that are kept for job {key}, but they are too many to be named: it waits "
        "until that job is let in, or submit it with a nodeSelector or node affinity that chooses none of them"
    )


def next_decision() -> str:
    """Says that there is room, which this decision had no turn for."""
    return "there is room: the job is let in with the next decision"


def after_others() -> str:
    """Says that a job for which nodes come does not take those of jobs that are let in."""
    return "the job is let in as soon as the pods of others are placed"


def unreadable(why: str) -> str:
    """Says that a gang's template makes no pods, and what to do."""
    return (
        f"nobody can tell what the job's pods ask for: {why}; correct podTemplate or nodeResources of "
        "the job or its queue (`kubectl explain pod.spec` says how), and submit the job again"
    )


def quota_short(short: QuotaShortage) -> str:
    """Says which quota keeps a gang out, and what to do if waiting does not help."""
    asked, left = amount(short.resource, short.asked), amount(short.resource, short.left)
    if short.kept_for:
        return f"job {short.kept_for} waits for quota, which is kept for it"
    if short.scope is Scope.UNKNOWN:
        return (
            f"job {short.name} holds a place in the same queue, and nobody knows how large a one, because its template "
            f"is gone or cannot be read: delete job {short.name}, or wait until it ends"
        )
    if short.scope is Scope.UNNAMED:
        resource = short.resource if "." in short.resource else f"requests.{short.resource}"
        return (
            f"ResourceQuota {short.name} counts {short.resource}, and containers of the job do not name it "
            f"({short.containers}), so the API server refuses its pods: set resources.{resource} of each of them in "
            "podTemplate, or have a LimitRange of the namespace give defaults"
        )
    if short.scope is Scope.NODES_PER_JOB:
        return (
            f"the job has {asked}, and queue {short.name} allows {short.left} per job: ask for less, or raise maxNodes"
        )
    if short.scope is Scope.NAMESPACE and short.never:
        return f"the job takes {asked}, and ResourceQuota {short.name} allows {left} in all: ask for less, or raise it"
    if short.scope is Scope.NAMESPACE:
        return f"the job takes {asked} of ResourceQuota {short.name}, which has {left} left"
    whose = f"queue {short.name}" if short.scope is Scope.QUEUE else f"cohort {short.name}"
    if short.never:
        return (
            f"the job takes {asked}, and {whose} may hold {left} in all: ask for less, or raise quota.{short.resource}"
        )
    return f"the job takes {asked}, and {whose} has {left} of its quota left"


def never_fits(gang: Waiting, capacity: Capacity) -> str:
    """Says why a gang does not fit even if nothing else runs, and the nearest shape that would."""
    matching, tainted = capacity.kinds(gang.shape), _tainted(gang.shape, capacity)
    if not matching and tainted:
        return tainted
    matching = matching or tuple(node for node, _ in capacity.tainted(gang.shape))
    if not matching:
        return _nothing_matches(gang.shape, capacity.nodes)
    most, more = capacity.most(gang.shape), f"; {tainted}" if tainted else ""
    if most:
        return (
            f"the nodes take {counted(most, 'pod')} with {shape(gang.shape)} each even if nothing else runs, "
            f"and the job has {gang.pods}: numNodes {most} would fit{more}"
        )
    return f"{_pod_too_large(gang, matching)}{more}"


def _pod_too_large(gang: Waiting, matching: tuple[NodeInfo, ...]) -> str:
    """Cuts the pod down to what the node has that misses least of it."""

    def share(node: NodeInfo) -> int:
        """Returns how much of the pod the node has, in millionths."""
        asked = ((amount_of(name, node.allocatable), value) for name, value in gang.shape.requests if value)
        return min((min(there, value) * 10**6 // value for there, value in asked), default=0)

    best = max(matching, key=lambda node: (share(node), node.name))
    cut = tuple((name, min(value, amount_of(name, best.allocatable))) for name, value in gang.shape.requests)
    too_much = [
        f"{amount(name, value)} (the nearest node has {amount(name, there)})"
        for (name, value), (_, there) in zip(gang.shape.requests, cut, strict=True)
        if there < value
    ]
    if not too_much:
        return f"no node takes a further pod: {best.name}, the nearest one, allows none"
    said = f"no node that matches has {', '.join(too_much)}"
    if any(not there for (_, value), (_, there) in zip(gang.shape.requests, cut, strict=True) if value):
        return f"{said}: ask for less of it, or bring nodes that have it"
    smaller = PodShape(cut, gang.shape.selector, gang.shape.tolerations, gang.shape.affinity, gang.shape.one_per_node)
    return f"{said}: pods with {shape(smaller)} would fit"


def _tainted(asked: PodShape, capacity: Capacity) -> str:
    """Says which taints keep the pods from nodes that are large enough; empty if none do."""
    chosen = [(node, number) for node, number in capacity.tainted(asked) if slots_in(asked, node.allocatable)]
    if not chosen:
        return ""
    taints = sorted({taint for node, _ in chosen for taint in untolerated(asked, node.taints)})
    said = ", ".join(f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":") for taint in taints[:3])
    more = f" and {len(taints) - 3} more" if len(taints) > 3 else ""
    nodes = counted(sum(number for _, number in chosen), "node")
    return f"{nodes} would do if the pods tolerated taints (scheduling.tolerations): {said}{more}"


def _nothing_matches(asked: PodShape, nodes: tuple[NodeInfo, ...]) -> str:
    if not nodes:
        return "the cluster has no nodes: the job is let in once there are enough"
    for key, value in asked.selector:
        there = sorted({node.labels[key] for node in nodes if key in node.labels})
        if value not in there:
            known = f"it is {', '.join(there[:5])} there" if there else "nor any other value of it"
            return f"no node has label {key}={value}, {known}: correct nodeSelector, or label nodes"
    return "no node matches nodeSelector and required node affinity: correct them, or label nodes"
