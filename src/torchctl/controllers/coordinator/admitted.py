"""What a pod has that its template lacks: the operator's init container, and what the API server adds at admission.

That is defaults of LimitRanges, a RuntimeClass, and the default PriorityClass. kube-scheduler and ResourceQuotas count
all of it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from torchctl.api import quantity
from torchctl.api.capacity import LimitRange, RuntimeClass
from torchctl.api.common import Distribution
from torchctl.api.job import HotReload
from torchctl.controllers.owncontainers import LIMITS, REQUESTS

__all__ = ["PodDefaults", "admitted", "spec_of"]

Json = Mapping[str, Any]


class PodDefaults(NamedTuple):
    """What there is to add to the pods of one namespace.

    Args:
        limit_ranges: Those of the namespace.
        priority_class: The cluster's default; empty if it has none.
    """

    limit_ranges: tuple[LimitRange, ...] = ()
    runtimes: tuple[RuntimeClass, ...] = ()
    priority_class: str = ""


def spec_of(template: Json) -> Json:
    """Returns the spec of the pods of a frozen template as the operator makes them."""
    spec: Json = template["pod"]["spec"]
    workspace, rendezvous = template.get("workspace") or {}, template.get("rendezvous") or {}
    brings = bool(workspace) and workspace.get("distribution") != Distribution.SHARED
    launches = HotReload(template.get("hotReload") or HotReload.OFF).launches
    if not (brings or launches or rendezvous.get("preflight")):
        return spec
    ours = {"name": "torchctl", "resources": {"requests": REQUESTS, "limits": LIMITS}}
    return {**spec, "initContainers": [ours, *(spec.get("initContainers") or ())]}


def admitted(spec: Json, defaults: PodDefaults) -> Json:
    """Returns the spec of a pod as it will be after admission."""
    found = dict(spec)
    if defaults.priority_class and not found.get("priorityClassName"):
        found["priorityClassName"] = defaults.priority_class
    if found.get("resources"):
        found["resources"] = _of_pod(found)
    if defaults.limit_ranges:
        for field in ("containers", "initContainers"):
            found[field] = [_with_defaults(given, defaults.limit_ranges) for given in found.get(field) or ()]
    runtime = next((one for one in defaults.runtimes if one.metadata.name == found.get("runtimeClassName")), None)
    return found if runtime is None else _in_runtime(found, runtime)


def _of_pod(spec: Json) -> Json:
    """Returns the pod's own resources; it asks for as much as its limit of what none of its containers asks for."""
    given: Json = spec["resources"]
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    resources = [container.get("resources") or {} for container in containers]
    asked = {name for one in resources for field in ("requests", "limits") for name in one.get(field) or ()}
    more = {name: amount for name, amount in (given.get("limits") or {}).items() if name not in asked}
    return {**given, "requests": {**more, **(given.get("requests") or {})}}


def _with_defaults(container: Json, limit_ranges: Iterable[LimitRange]) -> Json:
    """Fills in what the container does not name; which of several LimitRanges comes first is not known, so the most."""
    given: Json = container.get("resources") or {}
    limits = dict(given.get("limits") or {})
    requests = {**limits, **(given.get("requests") or {})}
    more_limits: dict[str, str] = {}
    more_requests: dict[str, str] = {}
    for limit_range in limit_ranges:
        for item in limit_range.spec.limits or ():
            if item.type == "Container":
                _add_most(more_limits, item.default or {})
                _add_most(more_requests, item.default_request or {})
    resources = {**given, "limits": {**more_limits, **limits}, "requests": {**more_requests, **requests}}
    return {**container, "resources": resources}


def _add_most(known: dict[str, str], more: Mapping[str, str]) -> None:
    for name, amount in more.items():
        if name not in known or quantity.parse(known[name]).value < quantity.parse(amount).value:
            known[name] = amount


def _in_runtime(spec: Json, runtime: RuntimeClass) -> Json:
    found = dict(spec)
    if runtime.overhead is not None and runtime.overhead.pod_fixed:
        found["overhead"] = runtime.overhead.pod_fixed
    if runtime.scheduling is not None:
        found["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **(runtime.scheduling.node_selector or {})}
        found["tolerations"] = [*(spec.get("tolerations") or ()), *(runtime.scheduling.tolerations or ())]
    return found
