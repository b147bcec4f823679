"""Reads from pod specs what decides about their nodes: requests, selectors, tolerations, affinity.

A pod's requests are those that kube-scheduler counts: of all containers together, or of the init container that asks
for most if that is more, sidecars (init containers that are always restarted) beside both; instead of these, what the
pod itself names; and the overhead of the runtime class.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from torchctl.api import quantity
from torchctl.controllers.coordinator.matching import NODE_NAME
from torchctl.controllers.coordinator.values import HOST_PORT, Demand, PodShape, Requirement, Toleration

__all__ = [
    "amounts",
    "demand_of",
    "namespace_demand",
    "requests_of",
    "scopes_of",
    "shape_of",
    "taken_of",
    "unnamed_of",
]

Json = Mapping[str, Any]

_HOSTNAME = "kubernetes.io/hostname"
_UNMODELLED = ("resourceClaims", "nodeName", "schedulingGates")
"""Fields of a pod's spec that limit its nodes, or hold it back, in a way that is not computed."""

_PLAIN_IN_QUOTAS = ("cpu", "memory", "ephemeral-storage", "hugepages-")
"""Resources that a ResourceQuota may name without `requests.` (podComputeUsageHelper in Kubernetes)."""


_NAMED_FOR_QUOTAS = {
    f"{prefix}{name}": (name, "limits" if prefix == "limits." else "requests")
    for prefix in ("", "requests.", "limits.")
    for name in ("cpu", "memory")
}
"""Resources of a ResourceQuota that each container has to name, or the pod is refused (podEvaluator.Constraints)."""


def amounts(given: Mapping[str, Any]) -> dict[str, int]:
    """Returns amounts as whole numbers: CPUs in thousandths, all else in units, rounded up as kube-scheduler does."""
    return {name: _milli(value) if name == "cpu" else _units(value) for name, value in given.items()}


def requests_of(spec: Json, *, field: str = "requests") -> dict[str, int]:
    """Returns what one pod asks for. A resource with a limit alone is asked for as much, as the API server defaults it.

    Args:
        field: `requests`, or `limits` for what a ResourceQuota of limits counts.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add(total, _of(container, field))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        asked = _of(container, field)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, asked)
            asked = dict(sidecars)
        else:
            _add(asked, sidecars)
        for name, amount in asked.items():
            peak[name] = max(peak.get(name, 0), amount)
    _add(total, sidecars)
    found = {name: max(total.get(name, 0), peak.get(name, 0)) for name in {**total, **peak}}
    own: Json = spec.get("resources") or {}
    found |= amounts(own.get(field) or {})
    _add(found, amounts(spec.get("overhead") or {}))
    return found


def taken_of(spec: Json) -> dict[str, int]:
    """Returns what one pod takes of a node: what it asks for, and ports, of which each node has one."""
    return requests_of(spec) | dict.fromkeys(_host_ports(spec), 1)


def shape_of(spec: Json, labels: Mapping[str, str]) -> PodShape:
    """Returns the shape of a gang's pods.

    Args:
        spec: The spec of its pod template.
        labels: The labels of the pods, by which their anti-affinity finds each other.
    """
    affinity: Json = spec.get("affinity") or {}
    alone, unmodelled = _anti_affinity(affinity.get("podAntiAffinity") or {}, labels)
    odd = [*unmodelled, *_limits(spec)]
    if (affinity.get("podAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
        odd.append("affinity.podAffinity")
    return PodShape(
        requests=tuple(sorted((name, amount) for name, amount in taken_of(spec).items() if amount)),
        selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        tolerations=tuple(_toleration(given) for given in spec.get("tolerations") or ()),
        affinity=_terms(affinity.get("nodeAffinity") or {}),
        one_per_node=alone,
        unmodelled=tuple(sorted(odd)),
    )


def demand_of(spec: Json, pods: int, gpu_resource: str) -> Demand:
    """Returns what a gang takes of its queue's quota."""
    asked = requests_of(spec)
    return Demand(
        gpus=pods * asked.get(gpu_resource, 0), cpus=pods * asked.get("cpu", 0), memory=pods * asked.get("memory", 0)
    )


def namespace_demand(spec: Json, pods: int) -> tuple[tuple[str, int], ...]:
    """Returns what so many pods take of a ResourceQuota, by the names that it has for them."""
    requests, limits = requests_of(spec), requests_of(spec, field="limits")
    found = {"pods": 1, "count/pods": 1}
    found |= {f"requests.{name}": amount for name, amount in requests.items()}
    found |= {name: amount for name, amount in requests.items() if name.startswith(_PLAIN_IN_QUOTAS)}
    found |= {f"limits.{name}": amount for name, amount in limits.items()}
    return tuple(sorted((name, pods * amount) for name, amount in found.items()))


def scopes_of(spec: Json) -> tuple[tuple[str, str], ...]:
    """Returns the scopes of ResourceQuotas that a pod is in, and its PriorityClass as the value of that scope."""
    named = {**spec, "overhead": {}}  # it makes no pod better than BestEffort
    asked = {
        name for field in ("requests", "limits") for name, amount in requests_of(named, field=field).items() if amount
    }
    found = {
        "NotTerminating" if spec.get("activeDeadlineSeconds") is None else "Terminating": "",
        "NotBestEffort" if asked & {"cpu", "memory"} else "BestEffort": "",
    }
    if spec.get("priorityClassName"):
        found["PriorityClass"] = str(spec["priorityClassName"])
    if _names_namespaces(spec.get("affinity") or {}):
        found["CrossNamespacePodAffinity"] = ""
    return tuple(sorted(found.items()))


def unnamed_of(spec: Json) -> tuple[tuple[str, str], ...]:
    """Returns the resources that a ResourceQuota must not count, or it refuses the pod, each with containers' names.

    These are those that the containers do not name. A pod with resources of its own is refused for none.
    """
    own: Json = spec.get("resources") or {}
    if own.get("requests") or own.get("limits"):
        return ()
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    found = []
    for name, (resource, field) in sorted(_NAMED_FOR_QUOTAS.items()):
        lacking = [str(container.get("name")) for container in containers if resource not in _of(container, field)]
        if lacking:
            found.append((name, ", ".join(lacking)))
    return tuple(found)


def _names_namespaces(affinity: Json) -> bool:
    """Whether a term of the pod's affinity to other pods is about further namespaces."""
    for name in ("podAffinity", "podAntiAffinity"):
        given: Json = affinity.get(name) or {}
        preferred = given.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms = [*(given.get("requiredDuringSchedulingIgnoredDuringExecution") or ())]
        terms += [term.get("podAffinityTerm") or {} for term in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


# Each job has a template of its own, and most name the same few amounts, several times.
@lru_cache(maxsize=4096, typed=True)
def _milli(value: str | int) -> int:
    return quantity.parse(value).milli


@lru_cache(maxsize=4096, typed=True)
def _units(value: str | int) -> int:
    return int(quantity.parse(value).ceil().value)


def _of(container: Json, field: str) -> dict[str, int]:
    resources: Json = container.get("resources") or {}
    limits = resources.get("limits") or {}
    if field == "limits":
        return amounts(limits)
    return amounts({**limits, **(resources.get("requests") or {})})


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _toleration(given: Json) -> Toleration:
    fields = ("key", "operator", "value", "effect")
    known = {name: str(given[name]) for name in fields if given.get(name) is not None}
    return Toleration(**known)


def _terms(node_affinity: Json) -> tuple[tuple[Requirement, ...], ...]:
    required: Json = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return tuple(tuple(_requirements(term)) for term in required.get("nodeSelectorTerms") or ())


def _requirements(term: Json) -> Iterator[Requirement]:
    for given in term.get("matchExpressions") or ():
        yield Requirement(str(given.get("key")), str(given.get("operator")), tuple(given.get("values") or ()))
    for given in term.get("matchFields") or ():
        # The API server knows no other field than the name; of another one nothing would be known.
        key = NODE_NAME if given.get("key") == NODE_NAME else f"field:{given.get('key')}"
        yield Requirement(key, str(given.get("operator")), tuple(given.get("values") or ()))


def _anti_affinity(given: Json, labels: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Returns whether the pods exclude each other from a node, and what else there is, which is not computed."""
    terms = given.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    own = [term for term in terms if term.get("topologyKey") == _HOSTNAME and _selects(term, labels)]
    return bool(own), ["affinity.podAntiAffinity"] if terms else []


def _selects(term: Json, labels: Mapping[str, str]) -> bool:
    selector: Json = term.get("labelSelector") or {}
    wanted: Json = selector.get("matchLabels") or {}
    if selector.get("matchExpressions"):
        return False
    return all(labels.get(key) == value for key, value in wanted.items())


def _limits(spec: Json) -> Iterator[str]:
    for name in _UNMODELLED:
        if spec.get(name):
            yield name
    constraints: Iterable[Json] = spec.get("topologySpreadConstraints") or ()
    if any(constraint.get("whenUnsatisfiable") != "ScheduleAnyway" for constraint in constraints):
        yield "topologySpreadConstraints"
    volumes: Iterable[Json] = spec.get("volumes") or ()
    if any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in volumes):
        yield "volumes"


def _host_ports(spec: Json) -> Iterator[str]:
    """Yields the ports of the node that a pod takes. That of one address counts as that of all."""
    sidecars = (one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always")
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if number:
                yield f"{HOST_PORT}{port.get('protocol') or 'TCP'}/{number}"
