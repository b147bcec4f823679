"""Which node the default scheduler binds a pod to: one pod at a time, by resources, selectors and taints. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from torchctl.api import quantity

__all__ = ["Place", "choose", "machine", "requests", "tolerates"]

Json = dict[str, Any]


@dataclass(slots=True)
class Place:
    """A node that takes pods, with what is left on it."""

    name: str
    labels: dict[str, str]
    taints: Sequence[Json]
    left: dict[str, Fraction] = field(default_factory=dict)

    def take(self, wanted: dict[str, Fraction]) -> None:
        for name, amount in wanted.items():
            self.left[name] = self.left.get(name, Fraction(0)) - amount


def machine(node: Json) -> Place:
    """Returns an empty node."""
    amounts = {name: quantity.parse(text).value for name, text in node["status"]["allocatable"].items()}
    meta = node["metadata"]
    return Place(meta["name"], meta.get("labels", {}), node.get("spec", {}).get("taints", ()), amounts)


def requests(pod: Json) -> dict[str, Fraction]:
    """Returns what a pod needs: its containers together, or its largest init container if that is more."""
    spec = pod["spec"]
    total = _sum(_of(container) for container in spec["containers"])
    for container in spec.get("initContainers", ()):
        needed = _of(container)
        if container.get("restartPolicy") == "Always":
            total = _sum((total, needed))
        else:
            total = {name: max(total.get(name, Fraction(0)), needed.get(name, Fraction(0))) for name in total | needed}
    return total | {"pods": Fraction(1)}


def choose(pod: Json, places: Iterable[Place]) -> tuple[Place | None, str]:
    """Returns the fitting node with the most GPUs left, or None and why none fits."""
    wanted, reasons, fitting = requests(pod), Counter[str](), list[Place]()
    count = 0
    for place in places:
        count += 1
        reason = _obstacle(pod["spec"], wanted, place)
        if reason:
            reasons[reason] += 1
        else:
            fitting.append(place)
    if fitting:
        return max(fitting, key=lambda place: (sum(place.left.values()), place.name)), ""
    told = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    return None, f"0/{count} nodes are available: {told}."


def tolerates(tolerations: Iterable[Json], taint: Json) -> bool:
    """Tells if a pod tolerates a taint, for however long."""
    for one in tolerations:
        key = one.get("key") in (None, "", taint["key"])
        effect = one.get("effect") in (None, "", taint["effect"])
        value = one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", "")
        if key and effect and value:
            return True
    return False


def _obstacle(spec: Json, wanted: dict[str, Fraction], place: Place) -> str:
    if not spec.get("nodeSelector", {}).items() <= place.labels.items():
        return "node(s) didn't match Pod's node affinity/selector"
    terms = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    if terms and not any(_matches(term, place) for term in terms["nodeSelectorTerms"]):
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in place.taints:
        if taint["effect"] != "PreferNoSchedule" and not tolerates(spec.get("tolerations", ()), taint):
            return f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
    for name, amount in sorted(wanted.items()):
        if place.left.get(name, Fraction(0)) < amount:
            return f"Insufficient {name}"
    return ""


def _matches(term: Json, place: Place) -> bool:
    """Tells if a node affinity term chooses a node."""
    by_label = (_meets(one, place.labels.get(one["key"])) for one in term.get("matchExpressions", ()))
    by_field = (_meets(one, place.name) for one in term.get("matchFields", ()))
    return all(by_label) and all(by_field)


def _meets(requirement: Json, value: str | None) -> bool:
    match requirement["operator"]:
        case "In":
            return value in requirement["values"]
        case "NotIn":
            return value not in requirement["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise NotImplementedError(requirement["operator"])


def _of(container: Json) -> dict[str, Fraction]:
    resources = container.get("resources", {})
    given = {**resources.get("limits", {}), **resources.get("requests", {})}
    return {name: quantity.parse(text).value for name, text in given.items()}


def _sum(parts: Iterable[dict[str, Fraction]]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total
