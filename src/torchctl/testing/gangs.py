"""Decides which pods a gang scheduler binds now, and to which nodes: all of a group or none. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torchctl.api.names import DEFAULT_SCHEDULER
from torchctl.runtime.kinds import Key
from torchctl.testing.nodekinds import Pod

__all__ = ["POD_GROUP_NAME", "Machine", "place"]

POD_GROUP_NAME = "pod-group-name"
"""The annotation that names a pod's PodGroup."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node that takes pods: its labels, and how many of each countable resource (GPUs) it has."""

    name: str
    labels: Mapping[str, str]
    capacity: Mapping[str, int]


def place(
    pods: Iterable[Pod],
    groups: Mapping[Key, int],
    machines: Sequence[Machine],
    assumed: Mapping[str, str] = MappingProxyType({}),
) -> list[tuple[Pod, str]]:
    """Decides for all pods that wait for another scheduler than the default one.

    Args:
        pods: All pods there are.
        groups: `minMember` of each PodGroup; the pods of a group that is not here wait for it.
        machines: The nodes that take pods.
        assumed: Nodes by uid of pods that are being bound.

    Returns:
        Pods and their nodes. Groups are placed in the order of their names, so that the result is deterministic.
    """
    present = [pod for pod in pods if not pod.is_terminal]
    used: dict[str, Counter[str]] = defaultdict(Counter)
    bound: Counter[Key] = Counter()
    waiting: dict[Key, list[Pod]] = defaultdict(list)
    for pod in sorted(present, key=lambda pod: pod.key):
        node = pod.spec.node_name or assumed.get(pod.metadata.uid)
        if node:
            used[node].update(_request(pod))
            bound[_group(pod)] += 1
        elif pod.spec.scheduler_name != DEFAULT_SCHEDULER and not pod.spec.scheduling_gates and not pod.is_leaving:
            waiting[_group(pod)].append(pod)
    chosen: list[tuple[Pod, str]] = []
    for group, members in sorted(waiting.items()):
        least = groups.get(group) if _is_grouped(members[0]) else 1
        if least is not None:
            chosen += _fit(members, least - bound[group], machines, used)
    return chosen


def _fit(
    members: Sequence[Pod], least: int, machines: Sequence[Machine], used: dict[str, Counter[str]]
) -> list[tuple[Pod, str]]:
    """Places as many members as fit, if at least `least` do, and adds their requests to `used`."""
    trial = defaultdict(Counter, {name: counter.copy() for name, counter in used.items()})
    chosen: list[tuple[Pod, str]] = []
    for pod in members:
        request = _request(pod)
        for machine in machines:
            if _selects(pod, machine) and _has_room(machine, trial[machine.name], request):
                trial[machine.name].update(request)
                chosen.append((pod, machine.name))
                break
    if len(chosen) < max(least, 0):
        return []
    used.update(trial)
    return chosen


def _selects(pod: Pod, machine: Machine) -> bool:
    return pod.spec.node_selector.items() <= machine.labels.items()


def _has_room(machine: Machine, used: Counter[str], request: Counter[str]) -> bool:
    return all(used[name] + count <= machine.capacity.get(name, 0) for name, count in request.items())


def _request(pod: Pod) -> Counter[str]:
    """Returns the countable resources: those of device plugins, whose names have a slash."""
    total: Counter[str] = Counter()
    for container in pod.spec.containers:
        for name, amount in (container.resources.requests or {}).items():
            if "/" in name:
                total[name] += int(amount)
    return total


def _is_grouped(pod: Pod) -> bool:
    return POD_GROUP_NAME in pod.metadata.annotations


def _group(pod: Pod) -> Key:
    """Returns the pod's group; a pod without one is its own group, with a name that no PodGroup can have."""
    name = pod.metadata.annotations.get(POD_GROUP_NAME) or f"/{pod.metadata.name}"
    return Key(pod.metadata.namespace, name)
